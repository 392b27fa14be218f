//! Calls that are abandoned.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use tokio::task::{spawn, spawn_blocking};
use zero_kv::client::{AsyncClient, Client, ClientError, Options};

use crate::helpers::scripted_server::{Script, ScriptedServer, found, page};

#[tokio::test]
async fn a_dropped_future_leaves_no_response_for_the_next_call() {
    let late = Script::answering(&[b"", &found(b"of another key")]);
    let peer = ScriptedServer::with_scripts(vec![late, Script::answering(&[&found(b"eight")])]);
    let mut client = AsyncClient::connect(peer.socket()).await.unwrap();
    let peer = Arc::new(Mutex::new(peer));
    let asked = Arc::clone(&peer);
    tokio::select! {
        answer = client.get(7) => panic!("the peer sent no response, but the call returned {answer:?}"),
        request = spawn_blocking(move || asked.lock().unwrap().request()) => assert_eq!(request.unwrap()[15], 7),
    }
    assert_eq!(client.get(8).await.unwrap().as_deref(), Some(&b"eight"[..]));
    assert_eq!(peer.lock().unwrap().request()[15], 8);
}

#[tokio::test]
async fn a_call_can_run_in_a_spawned_task() {
    let peer = ScriptedServer::answering(&[&found(b"seven"), &found(b"eight"), &page(&[(1_u64, "one")], 0)]);
    let mut client = AsyncClient::connect(peer.socket()).await.unwrap();
    let asking = spawn(async move {
        let values = client.get_many(&[7, 8]).await?;
        let row = client.range(1_u64..2)?.next().await?;
        Ok::<_, ClientError>((values.len(), row))
    });
    let (value_count, row) = asking.await.unwrap().unwrap();
    assert_eq!((value_count, row.unwrap().1), (2, b"one".to_vec()));
}

#[test]
fn a_panicking_visitor_leaves_no_response_for_the_next_call() {
    let two = [found(b"seven"), found(b"eight")];
    let peer = ScriptedServer::with_scripts(vec![
        Script::answering(&[&two[0], &two[1]]),
        Script::answering(&[&found(b"nine")]),
    ]);
    let mut client = Client::connect_with(peer.socket(), &Options::default()).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| client.get_many_with(&[7, 8], |_, _| panic!("on purpose"))));
    assert!(panicked.is_err());
    assert_eq!(client.get(9).unwrap().as_deref(), Some(&b"nine"[..]));
}
