//! A plain HTTP GET of an object to a synced file, in a process of its own, so that its processor time can be measured.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};

/// The environment variable with the arguments of a child, separated by line ends.
const CHILD: &str = "ZERO_KV_BENCH_PUBLISH_CHILD";
const BUFFER_LEN_BYTES: usize = 1 << 20;

/// The time and the processor time of a GET.
pub(crate) struct Get {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
}

/// Returns whether this process is a child.
pub(crate) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Gets an object in a child process, and writes it to a file.
pub(crate) fn measure(address: &str, object: &str, output: &Path) -> Result<Get, Box<dyn Error>> {
    let args = [address, object, output.to_str().ok_or("a path that is UTF-8")?].join("\n");
    let child = Command::new(env::current_exe()?).env(CHILD, args).output()?;
    let printed = String::from_utf8(child.stdout)?;
    let numbers: Vec<f64> = printed.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [seconds, cpu_seconds] = numbers[..] else { return Err(format!("a child printed {printed:?}").into()) };
    Ok(Get { seconds, cpu_seconds })
}

/// Gets the object that the arguments name, and prints the time and the processor time.
pub(crate) fn run_child() -> Result<(), Box<dyn Error>> {
    let args = env::var(CHILD)?;
    let [address, object, output] = args.split('\n').collect::<Vec<_>>()[..] else {
        return Err("three arguments".into());
    };
    let began = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /{object} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut response = BufReader::with_capacity(BUFFER_LEN_BYTES, stream);
    let (mut line, mut left_bytes) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        response.read_line(&mut line)?;
        if let Some(len_bytes) = line.strip_prefix("Content-Length: ") {
            left_bytes = len_bytes.trim().parse()?;
        }
    }
    let mut file = File::create(output)?;
    let mut buffer = vec![0; BUFFER_LEN_BYTES];
    while left_bytes > 0 {
        let count = response.read(&mut buffer)?;
        if count == 0 {
            return Err(format!("the response ended {left_bytes} bytes too early").into());
        }
        file.write_all(&buffer[..count])?;
        left_bytes -= count;
    }
    file.sync_all()?;
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    println!("{} {}", began.elapsed().as_secs_f64(), seconds(usage.user_time()) + seconds(usage.system_time()));
    Ok(())
}
