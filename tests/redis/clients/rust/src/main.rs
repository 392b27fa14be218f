//! redis-rs: `zero-kv-redis-rs SOCKET PORT [COUNT]` checks reads and transactions, or one pipeline of COUNT GETs.
//! `zero-kv-redis-rs cluster PORT` checks reads of a cluster, one of whose nodes has this port.

use std::collections::BTreeSet;
use std::env::args;

use redis::cluster::{ClusterClient, cluster_pipe};
use redis::cluster_read_routing::RandomReplicaStrategy;
use redis::{Client, Commands, Connection, ErrorKind, Pipeline, RedisResult, ServerErrorKind};

const ROWS: usize = 10_000;

fn value(key: usize) -> String {
    let fill = char::from(b'a' + (key % 26) as u8).to_string();
    let start = format!("{key}:");
    let fill_len = 20 + key * 7919 % 981 - start.len();
    start + &fill.repeat(fill_len)
}

fn pipeline_key(i: usize) -> usize {
    i * 7 % (ROWS + 7)
}

fn gets(pipeline: &mut Pipeline, count: usize) -> &Pipeline {
    for i in 0..count {
        pipeline.get(pipeline_key(i));
    }
    pipeline
}

fn check_values(found: &[Option<String>], count: usize) {
    assert_eq!(found.len(), count);
    for (i, found) in found.iter().enumerate() {
        let key = pipeline_key(i);
        assert_eq!(found, &(key < ROWS).then(|| value(key)), "GET {key}");
    }
}

fn reads(con: &mut Connection) -> RedisResult<()> {
    assert_eq!(redis::cmd("PING").query::<String>(con)?, "PONG");
    assert_eq!(redis::cmd("DBSIZE").query::<usize>(con)?, ROWS);
    assert_eq!(con.get::<_, String>(7)?, value(7));
    assert_eq!(con.get::<_, Option<String>>(ROWS)?, None);
    let expected = [Some(value(1)), None, Some(value(3))];
    assert_eq!(con.mget::<_, Vec<Option<String>>>(&[1, ROWS, 3])?, expected);
    assert_eq!(con.exists::<_, usize>(&[1, 1, ROWS])?, 2);
    assert_eq!(con.strlen::<_, usize>(7)?, value(7).len());
    assert_eq!(con.getrange::<_, String>(7, 0, 4)?, value(7)[..5]);
    assert_eq!(con.key_type::<_, String>(7)?, "string");
    assert_eq!(con.ttl::<_, i64>(7)?, -1);
    let keys: RedisResult<BTreeSet<usize>> = con.scan()?.collect();
    assert_eq!(keys?, (0..ROWS).collect());
    assert!(redis::cmd("INFO").query::<String>(con)?.contains("redis_version"));
    let error = con.set::<_, _, ()>(1, "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly));
    let error = redis::cmd("NOSUCHCOMMAND").query::<()>(con).unwrap_err();
    assert!(error.to_string().contains("unknown command"), "{error}");
    Ok(())
}

fn transactions(con: &mut Connection) -> RedisResult<()> {
    check_values(&gets(redis::pipe().atomic(), 3000).query::<Vec<_>>(con)?, 3000);
    let error = redis::pipe().atomic().get(7).set(1, "x").query::<()>(con).unwrap_err();
    assert!(error.to_string().contains("ReadOnly"), "{error}");
    let found: (String, usize) = redis::transaction(con, &["7"], |con, pipe| {
        assert_eq!(con.get::<_, String>(7)?, value(7));
        pipe.get(3).exists(ROWS).query(con)
    })?;
    assert_eq!(found, (value(3), 0));
    Ok(())
}

/// Checks reads from primaries, and from replicas.
fn cluster(port: &str) -> RedisResult<()> {
    let url = format!("redis://127.0.0.1:{port}/");
    for reads_replicas in [false, true] {
        let builder = ClusterClient::builder([url.as_str()]);
        let client = if reads_replicas { builder.read_routing_strategy(RandomReplicaStrategy) } else { builder }.build()?;
        let mut con = client.get_connection()?;
        let mut pipeline = cluster_pipe();
        for i in 0..3000 {
            pipeline.get(pipeline_key(i));
        }
        check_values(&pipeline.query::<Vec<_>>(&mut con)?, 3000);
        for key in 0..500 {
            assert_eq!(con.get::<_, String>(key)?, value(key));
        }
    }
    Ok(())
}

fn main() -> RedisResult<()> {
    let args: Vec<String> = args().skip(1).collect();
    if args[0] == "cluster" {
        return cluster(&args[1]);
    }
    let mut unix = Client::open(format!("redis+unix://{}", args[0]))?.get_connection()?;
    if let Some(count) = args.get(2) {
        let count = count.parse().unwrap();
        check_values(&gets(&mut redis::pipe(), count).query::<Vec<_>>(&mut unix)?, count);
        return Ok(());
    }
    let mut tcp = Client::open(format!("redis://127.0.0.1:{}/", args[1]))?.get_connection()?;
    for con in [&mut unix, &mut tcp] {
        reads(con)?;
        transactions(con)?;
    }
    Ok(())
}
