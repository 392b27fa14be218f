//! The text of dates and times, in the Gregorian calendar.
//!
//! In: days or units of time since 1970, or their text. Out: text, or days and units. Years before 0 and after 9999 have
//! a sign.

use std::io::Write;

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// The number of days in 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
/// The number of days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

/// Appends the text of a date: days since 1970-01-01.
pub(crate) fn write_date(days: i64, to: &mut Vec<u8>) -> std::io::Result<()> {
    let Date { year, month, day } = Date::from_days(days);
    match year {
        0..=9999 => write!(to, "{year:04}-{month:02}-{day:02}"),
        // As in ISO 8601, a year with another number of digits has a sign.
        _ => write!(to, "{year:+05}-{month:02}-{day:02}"),
    }
}

/// Appends the text of a timestamp: seconds since 1970, and the fraction of a second in units of
/// which a second has 10 to the power of `digits`. The seconds must be in the range of a timestamp of milliseconds.
pub(crate) fn write_instant(seconds: i64, fraction: i64, digits: usize, to: &mut Vec<u8>) {
    write_date(seconds.div_euclid(SECONDS_PER_DAY), to).expect("writes to a vector do not fail");
    let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    write!(to, "T{hour:02}:{minute:02}:{second:02}.{fraction:0digits$}Z").expect("writes to a vector do not fail");
}

/// Parses a date. A year has four digits, or a sign and at least four digits.
pub(crate) fn parse_date(text: &str) -> Option<i64> {
    let (rest, day) = text.rsplit_once('-')?;
    let (year, month) = rest.rsplit_once('-')?;
    let is_signed = year.starts_with(['+', '-']);
    let year_digits = year.trim_start_matches(['+', '-']);
    let is_year = if is_signed { year_digits.len() >= 4 } else { year_digits.len() == 4 };
    let are_digits = [year_digits, month, day].iter().all(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_year || month.len() != 2 || day.len() != 2 || !are_digits || year.len() > year_digits.len() + 1 {
        return None;
    }
    Date { year: year.parse().ok()?, month: month.parse().ok()?, day: day.parse().ok()? }.days()
}

/// Parses a time with a date, in RFC 3339 or with a space between date and time. The offset may be missing, which means
/// UTC. Returns the number of units since 1970, of which a second has 10 to the power of `digits`.
pub(crate) fn parse_instant(text: &str, digits: usize) -> Option<i64> {
    let at = text.find(['T', 't', ' '])?;
    let days = parse_date(&text[..at])?;
    let time = &text[at + 1..];
    let (time, offset_minutes) = match time.find(['Z', 'z', '+', '-']) {
        None => (time, 0),
        Some(at) if time[at..].eq_ignore_ascii_case("z") => (&time[..at], 0),
        Some(at) => (&time[..at], offset(&time[at..])?),
    };
    let (whole, fraction) = time.split_once('.').map_or((time, ""), |(whole, fraction)| (whole, fraction));
    if time.len() > whole.len() && fraction.is_empty() {
        return None;
    }
    let (hour, minute, second) = match whole.split(':').collect::<Vec<_>>()[..] {
        [hour, minute] => (two_digits(hour, 23)?, two_digits(minute, 59)?, 0),
        [hour, minute, second] => (two_digits(hour, 23)?, two_digits(minute, 59)?, two_digits(second, 59)?),
        _ => return None,
    };
    let seconds = i128::from(days) * i128::from(SECONDS_PER_DAY)
        + i128::from(hour * 3600 + minute * 60 + second - offset_minutes * 60);
    let (kept, dropped) = fraction.split_at_checked(digits).unwrap_or((fraction, ""));
    if !kept.bytes().all(|byte| byte.is_ascii_digit()) || dropped.bytes().any(|byte| byte != b'0') {
        return None;
    }
    let units: i128 = format!("{kept:0<digits$}").parse().ok()?;
    i64::try_from(seconds * 10_i128.pow(digits as u32) + units).ok()
}

/// Parses an offset from UTC, `+01:30` or `+0130`, in minutes.
fn offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        _ => (-1, &text[1..]),
    };
    let (hour, minute) = match rest.split_once(':') {
        Some(parts) => parts,
        None => rest.split_at_checked(2)?,
    };
    Some(sign * (two_digits(hour, 23)? * 60 + two_digits(minute, 59)?))
}

fn two_digits(text: &str, max: i64) -> Option<i64> {
    let are_digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| are_digits && *number <= max)
}

/// A date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: i64,
    /// 1 to 12.
    month: i64,
    /// 1 to 31.
    day: i64,
}

impl Date {
    /// Returns the date that is a number of days after 1970-01-01. The number must be one that an `i64` of milliseconds
    /// can express.
    fn from_days(days: i64) -> Date {
        // A year begins in March here, so that the leap day is its last day.
        let days = days + DAYS_TO_1970;
        let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // From March on, each five months have 153 days.
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Date { year: era * 400 + year_of_era + i64::from(month <= 2), month, day }
    }

    /// Returns the number of days from 1970-01-01 to this date. Returns `None` if the calendar has no such date, or if
    /// the year is beyond ±300 million.
    fn days(self) -> Option<i64> {
        let Date { year, month, day } = self;
        if year.abs() > 300_000_000 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let year_from_march = year - i64::from(month <= 2);
        let (era, year_of_era) = (year_from_march.div_euclid(400), year_from_march.rem_euclid(400));
        let month_from_march = (month + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * DAYS_PER_ERA + day_of_era - DAYS_TO_1970;
        // A day such as February 30 is another date.
        (Date::from_days(days) == self).then_some(days)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_each_other_and_are_read_back() {
        let month_days = |year: i64, month: i64| match month {
            2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let (mut date, first) = (Date { year: -801, month: 1, day: 1 }, -1_012_087);
        for days in first..first + 1_200_000 {
            assert_eq!((Date::from_days(days), date.days()), (date, Some(days)));
            date.day += 1;
            if date.day > month_days(date.year, date.month) {
                assert_eq!(date.days(), None, "{date:?}");
                date = Date { day: 1, month: date.month % 12 + 1, year: date.year + i64::from(date.month == 12) };
            }
        }
        assert_eq!(Date::from_days(0), Date { year: 1970, month: 1, day: 1 });
        for days in [i32::MIN, i32::MAX] {
            assert_eq!(Date::from_days(days.into()).days(), Some(days.into()));
        }
    }
}
