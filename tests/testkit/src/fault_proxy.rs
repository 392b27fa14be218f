//! A proxy in front of a store over HTTP, which makes requests fail in the ways that a test chooses.
//!
//! Each connection transfers one request and its response.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum ProxyFault {
    /// The request reaches the store, and the connection is reset instead of its response.
    LoseResponse,
    /// The request reaches the store, which then gets the same request with this body, but without a condition, as if
    /// another client had created the object at the same time.
    Overwrite(Vec<u8>),
    /// The response has this status and these header lines. The request does not reach the store.
    Status(u16, &'static str),
    /// The request reaches the store without its condition.
    IgnoreCondition,
    /// The request reaches the store after this time.
    Delay(Duration),
}

struct Rule {
    /// Methods, such as `GET|HEAD`.
    methods: &'static str,
    path_part: &'static str,
    fault: ProxyFault,
    /// How often the rule is still applied.
    left: u64,
    /// The rule is applied to every n-th request.
    every: u64,
    seen: u64,
}

impl Rule {
    /// Returns the fault if it applies to a request.
    fn apply(&mut self, request: &Request) -> Option<ProxyFault> {
        let is_meant = self.left > 0
            && self.methods.split('|').any(|method| method == request.method)
            && request.path.contains(self.path_part);
        self.seen += u64::from(is_meant);
        if !is_meant || !self.seen.is_multiple_of(self.every) {
            return None;
        }
        self.left -= 1;
        Some(self.fault.clone())
    }
}

/// A request that the proxy has received.
#[derive(Clone, Debug)]
pub struct ProxiedRequest {
    pub method: String,
    pub path: String,
    pub at: Instant,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    requests: Vec<ProxiedRequest>,
    in_flight: usize,
    in_flight_max: usize,
}

/// A proxy with its threads, which run until the process ends.
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FaultProxy {
    pub fn start(server: SocketAddr) -> FaultProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = FaultProxy { address: listener.local_addr().unwrap(), state: Arc::default() };
        let state = Arc::clone(&proxy.state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&state);
                // A client may close its connection at any time.
                thread::spawn(move || transfer(client, server, &state));
            }
        });
        proxy
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Applies a fault to the next `count` requests with one of the methods whose path contains a text.
    pub fn fail(&self, methods: &'static str, path_part: &'static str, fault: ProxyFault, count: u64) {
        self.state.lock().unwrap().rules.push(Rule { methods, path_part, fault, left: count, every: 1, seen: 0 });
    }

    /// Applies a fault to every n-th request with one of the methods whose path contains a text.
    pub fn fail_every(&self, every: u64, methods: &'static str, path_part: &'static str, fault: ProxyFault) {
        let rule = Rule { methods, path_part, fault, left: u64::MAX, every, seen: 0 };
        self.state.lock().unwrap().rules.push(rule);
    }

    /// Ends all faults, and forgets all requests.
    pub fn reset(&self) {
        *self.state.lock().unwrap() = State::default();
    }

    /// Returns the requests with one of the methods whose path contains a text.
    pub fn requests(&self, methods: &str, path_part: &str) -> Vec<ProxiedRequest> {
        let is_found = |request: &&ProxiedRequest| {
            methods.split('|').any(|method| method == request.method) && request.path.contains(path_part)
        };
        self.state.lock().unwrap().requests.iter().filter(is_found).cloned().collect()
    }

    /// Returns the maximum number of requests that were in flight at the same time.
    pub fn in_flight_max(&self) -> usize {
        self.state.lock().unwrap().in_flight_max
    }
}

fn transfer(client: TcpStream, server: SocketAddr, state: &Mutex<State>) -> io::Result<()> {
    let Some(request) = Request::read(&client)? else { return Ok(()) };
    let fault = {
        let mut state = state.lock().unwrap();
        state.requests.push(ProxiedRequest {
            method: request.method.clone(),
            path: request.path.clone(),
            at: Instant::now(),
        });
        state.in_flight += 1;
        state.in_flight_max = state.in_flight_max.max(state.in_flight);
        state.rules.iter_mut().find_map(|rule| rule.apply(&request))
    };
    let result = respond(client, server, &request, fault);
    state.lock().unwrap().in_flight -= 1;
    result
}

fn respond(mut client: TcpStream, server: SocketAddr, request: &Request, fault: Option<ProxyFault>) -> io::Result<()> {
    let response = match fault {
        None => request.send(server, &request.body, &[])?,
        Some(ProxyFault::Delay(time)) => {
            thread::sleep(time);
            request.send(server, &request.body, &[])?
        }
        Some(ProxyFault::IgnoreCondition) => request.send(server, &request.body, &["if-none-match"])?,
        Some(ProxyFault::LoseResponse) => {
            request.send(server, &request.body, &[])?;
            return Ok(set_socket_linger(&client, Some(Duration::ZERO))?);
        }
        Some(ProxyFault::Overwrite(body)) => {
            let response = request.send(server, &request.body, &[])?;
            request.send(server, &body, &["if-none-match", "x-amz-content-sha256"])?;
            response
        }
        Some(ProxyFault::Status(status, headers)) => {
            format!("HTTP/1.1 {status} Fault\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n").into_bytes()
        }
    };
    client.write_all(&response)
}

struct Request {
    method: String,
    path: String,
    /// The other lines of the head, without their ends.
    headers: Vec<String>,
    body: Vec<u8>,
}

impl Request {
    fn read(client: &TcpStream) -> io::Result<Option<Request>> {
        let mut reader = BufReader::new(client);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let mut words = lines[0].split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let headers = lines.split_off(1);
        let length = |line: &String| name_of(line).eq("content-length").then(|| line[15..].trim().parse().unwrap());
        let mut body = vec![0; headers.iter().find_map(length).unwrap_or(0)];
        reader.read_exact(&mut body)?;
        Ok(Some(Request { method, path, headers, body }))
    }

    /// Sends the request, with another body and without some headers. Returns the response.
    fn send(&self, server: SocketAddr, body: &[u8], without: &[&str]) -> io::Result<Vec<u8>> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let is_sent = |line: &&String| {
            let name = name_of(line);
            name != "connection" && name != "content-length" && !without.contains(&&*name)
        };
        for line in self.headers.iter().filter(is_sent) {
            head += &format!("{line}\r\n");
        }
        if !body.is_empty() || self.method != "GET" && self.method != "HEAD" {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        let mut stream = TcpStream::connect(server)?;
        stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
        stream.write_all(body)?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        Ok(response)
    }
}

fn name_of(line: &str) -> String {
    line.split(':').next().unwrap_or_default().to_ascii_lowercase()
}
