//! Dates of the proleptic Gregorian calendar, for every day that a column can hold.

/// The number of days in 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
/// The number of days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

/// A date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// 1 to 31.
    pub(super) day: i64,
}

impl Date {
    /// Returns the date that is a number of days after 1970-01-01. The number must be one that an `i64` of milliseconds
    /// can express.
    pub(super) fn from_days(days: i64) -> Date {
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
    pub(super) fn days(self) -> Option<i64> {
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
