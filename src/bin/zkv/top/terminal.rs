//! The screen and the keys.
//!
//! In: what is shown, and what comes of asking. Out: a screen until somebody
//! leaves. However that happens, the terminal is as it was: raw mode and the
//! second screen are left at the end, after an error, by the hook of a panic, and
//! before a signal ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use super::draw::draw;
use super::feed::Feed;
use super::view::View;

/// What comes of asking is shown, and a signal obeyed, as late as this.
const TICK_MAX: Duration = Duration::from_millis(100);

/// Until somebody leaves.
pub(super) fn show(view: View, feed: &mut Feed) -> anyhow::Result<()> {
    let came = Arc::new(AtomicUsize::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register_usize(signal, Arc::clone(&came), signal as usize)?;
    }
    let shown = on_screen(view, feed, &came).map_err(|error| anyhow!("terminal: {error}"));
    match came.load(Ordering::Relaxed) {
        0 => shown,
        signal => Ok(low_level::emulate_default_handler(signal as i32)?),
    }
}

fn on_screen(mut view: View, feed: &mut Feed, came: &AtomicUsize) -> std::io::Result<()> {
    let _restored = Restored;
    let mut terminal = ratatui::try_init()?;
    let tick = view.interval.min(TICK_MAX);
    while came.load(Ordering::Relaxed) == 0 {
        terminal.draw(|frame| draw(&view, frame, Instant::now()))?;
        if event::poll(tick)? && matches!(event::read()?, Event::Key(key) if leaves(key)) {
            break;
        }
        if let Some(asked) = feed.next(Duration::ZERO) {
            view.take(asked, Instant::now());
        }
    }
    Ok(())
}

fn leaves(key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release
        && match key.code {
            KeyCode::Char('c') => is_control,
            KeyCode::Char('q') | KeyCode::Esc => true,
            _ => false,
        }
}

/// Dropped last, after what the terminal itself does when it is.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // Of a terminal that is gone there is nothing to restore.
        let _ = ratatui::try_restore();
    }
}
