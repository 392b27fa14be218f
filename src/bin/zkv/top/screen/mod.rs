//! The screen and the keyboard of `zkv top`.
//!
//! In: samples. Out: a screen until the user quits. `view` stores the samples to show, and `draw` formats them. The
//! terminal leaves raw mode and the alternate screen in every case: at the end, after an error, after a panic, and
//! before a signal ends the process.

mod draw;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use super::sample::Sample;
use super::sampler::Sampler;
use draw::draw;
use view::View;

/// Maximum time until the screen shows a new sample or reacts to a signal.
const TICK_MAX: Duration = Duration::from_millis(100);

/// Shows the screen until the user quits or a signal arrives.
pub(super) fn show(socket: &Path, interval: Duration, first: Sample, sampler: &mut Sampler) -> anyhow::Result<()> {
    let view = View::new(socket, interval, first);
    let received_signal = Arc::new(AtomicUsize::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register_usize(signal, Arc::clone(&received_signal), signal as usize)?;
    }
    let shown = run_screen(view, sampler, &received_signal).map_err(|error| anyhow!("terminal: {error}"));
    match received_signal.load(Ordering::Relaxed) {
        0 => shown,
        signal => Ok(low_level::emulate_default_handler(signal as i32)?),
    }
}

fn run_screen(mut view: View, sampler: &mut Sampler, received_signal: &AtomicUsize) -> std::io::Result<()> {
    let _guard = RestoreOnDrop;
    let mut terminal = ratatui::try_init()?;
    let tick = view.interval.min(TICK_MAX);
    while received_signal.load(Ordering::Relaxed) == 0 {
        terminal.draw(|frame| draw(&view, frame, Instant::now()))?;
        if event::poll(tick)? && matches!(event::read()?, Event::Key(key) if is_quit(key)) {
            break;
        }
        if let Some(result) = sampler.next(Duration::ZERO) {
            view.update(result, Instant::now());
        }
    }
    Ok(())
}

fn is_quit(key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release
        && match key.code {
            KeyCode::Char('c') => is_control,
            KeyCode::Char('q') | KeyCode::Esc => true,
            _ => false,
        }
}

/// A guard that restores the terminal when the guard is dropped. `run_screen` declares the guard first, so the terminal
/// is restored after all other cleanup.
struct RestoreOnDrop;

impl Drop for RestoreOnDrop {
    fn drop(&mut self) {
        // Restoring fails only if the terminal no longer exists.
        let _ = ratatui::try_restore();
    }
}
