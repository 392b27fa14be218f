//! Tests that compare drawn screens as text.

use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

const FIRST: &str = "pid 4711\nuptime_s 7381\nrequests_get 1000\nrequests_range 0\nrequests_info 1\nhits 0\nmisses 0\n\
    errors 0\nread_len_bytes 0\nwritten_len_bytes 0\nconnections_accepted 100\nbatch_requests_buckets\n\
    service_ns_buckets\n";
const SECOND: &str = "version 0.1.0\npid 4711\nuptime_s 7383\nworkers 2\nfile /srv/storage.db\nmemory map\n\
    verify touch\ngeneration 3\ndigest bca90a0883f5f3781f46240713f3ee61\nkeys u64\nrows 34924\nfile_len_bytes 1780872\n\
    resident_len_bytes 890436\nblocks 96\nblocks_verified 96\nstate serving\nconnections 101\nconnections_accepted 102\n\
    connections_cut_idle 1\nconnections_cut_stalled 2\nconnections_cut_slow 4\nconnections_cut_generation 8\nconnections_cut_memory 16\n\
    connections_cut_http 32\nconnections_cut_buffer 64\nconnections_refused 3\npanics 0\nrequests_get 2469134\n\
    requests_range 0\nrequests_info 2\nhits 2000000\nmisses 500000\nerrors 4\nread_len_bytes 32000000\n\
    written_len_bytes 64000000\nbatch_requests_buckets 1:10 255:990\nservice_ns_buckets 1023:500 98303:490 2097151:10\n\
    swaps 2\nrollbacks 1\nrefused_files 5\nfaults 6\nreload_last refused: damaged\n";

fn sample(at: Instant, text: &str) -> Sample {
    Sample::new(at, text.lines().map(|line| line.split_once(' ').unwrap_or((line, ""))))
}

/// Returns a view of two samples, the second of which was taken two seconds after the first one.
fn view() -> (View, Instant) {
    let start = Instant::now();
    let mut view = View::new(Path::new("/run/kv.sock"), Duration::from_secs(2), sample(start, FIRST));
    let now = start + Duration::from_secs(2);
    view.update(Ok(sample(now, SECOND)), now);
    (view, now)
}

fn screen(view: &View, now: Instant, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(view, frame, now)).unwrap();
    let cells = terminal.backend().buffer().content.chunks(width.into());
    let lines = cells.map(|cells| cells.iter().map(|cell| cell.symbol()).collect::<String>());
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn a_screen_of_80_by_24_shows_everything() {
    let (view, now) = view();
    let expected = "\
/run/kv.sock  kv_store 0.1.0  pid 4711  workers 2  up 2h 3m 3s  (q quits)
serving
┌ 1,234,068 requests/s, peak 1,234,068 in 136 s ───────────────────────────────┐
│1,234,068                                                                    █│
│                                                                             █│
│        0                                                                    █│
└──────────136 s ago ────────────────────────────────────────────────────── now┘
┌ requests/s by op ───────┐┌ responses ─────────────┐┌ connections, batches ───┐
│get             1,234,067││hits/s         1,000,000││open                  101│
│info                    1││misses/s         250,000││accepted/s              1│
│                         ││hit ratio         80.0 %││disconnected, idle      1│
│                         ││errors/s               2││disconnected, other   126│
│                         ││read/s          16.00 MB││rejected                3│
│                         ││written/s       32.00 MB││panics                  0│
│                         ││service p50       1.0 µs││batch p50             255│
│                         ││service p99      98.3 µs││batch p99             255│
│                         ││service p99.9     2.1 ms││batch max             255│
└─────────────────────────┘└────────────────────────┘└─────────────────────────┘
/srv/storage.db: 1.78 MB, 34,924 rows, keys u64
generation 3, digest bca90a0883f5f3781f46240713f3ee61
2 swaps, 1 rollbacks, 5 files rejected, 6 faults; memory map, verify touch
last reload: refused: damaged
resident  50.0 % ███████████████████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
verified 100.0 % ███████████████████████████████████████████████████████████████
";
    let screen = screen(&view, now, 80, 24);
    assert_eq!(screen, expected, "\n{screen}");
}

#[test]
fn problems_are_shown_below_the_title() {
    let (mut view, now) = view();
    let state = |view: &View, now| screen(view, now, 80, 24).lines().nth(1).unwrap().to_owned();
    let changed = sample(now + view.interval, &SECOND.replace("state serving", "state changed"));
    view.update(Ok(changed), now);
    assert!(state(&view, now).starts_with("changed: the file was changed in place"));
    view.update(Err("s: cannot connect".to_owned()), now);
    view.update(Err("s: no response".to_owned()), now + view.interval);
    let later = now + Duration::from_secs(60);
    assert_eq!(state(&view, later), "no response for 60 s, retrying: s: no response");
    let lost = screen(&view, later, 80, 24);
    assert!(lost.contains(" – requests/s, peak 1,234,068 "), "no rate while samples fail\n{lost}");
    let restarted = SECOND.replace("pid 4711", "pid 4712").replace("get 2469134", "get 5");
    view.update(Ok(sample(later, &restarted)), later);
    assert_eq!(state(&view, later), "serving; the server was restarted");
}

#[test]
fn a_screen_of_40_by_8_shows_the_most_important_figures_and_a_chart_with_scales() {
    let (view, now) = view();
    let expected = "\
/run/kv.sock  (q quits)
serving
1,234,068 requests/s  hit ratio 80.0 %
service p99 98.3 µs  generation 3
errors/s 2  connections 101
1,234,068                              █
        0                              █
          60 s ago                   now
";
    let screen = screen(&view, now, 40, 8);
    assert_eq!(screen, expected, "\n{screen}");
}

#[test]
fn a_screen_of_20_by_4_shows_rate_hit_ratio_and_service_time() {
    let (view, now) = view();
    let expected = "serving\n1,234,068 requests/s\nhit ratio 80.0 %\nservice p99 98.3 µs\n";
    let screen = screen(&view, now, 20, 4);
    assert_eq!(screen, expected, "\n{screen}");
}

#[test]
fn a_screen_of_any_size_is_drawn() {
    let (view, now) = view();
    for width in [1, 2, 3, 10, 26, 79, 300] {
        for height in [1, 2, 3, 5, 11, 23, 100] {
            screen(&view, now, width, height);
        }
    }
    // A server that reports no fields.
    let empty = View::new(Path::new("s"), Duration::from_secs(1), sample(now, ""));
    assert!(screen(&empty, now, 80, 24).contains("generation –, digest –"));
}
