//! What a program may say: the JSON lines that the monitor itself writes.

use serde::Deserialize;

use crate::module::{Column, Unit};

/// The protocol of `output::json`.
const PROTOCOL: u32 = 1;
pub const MOST_COLUMNS: usize = 256;
const LONGEST_NAME: usize = 64;
const LONGEST_LABEL: usize = 8;

const UNITS: [Unit; 11] = [
    Unit::Percent,
    Unit::Bytes,
    Unit::BytesPerSecond,
    Unit::Mib,
    Unit::MibPerSecond,
    Unit::Kib,
    Unit::PerSecond,
    Unit::Milliseconds,
    Unit::Seconds,
    Unit::Count,
    Unit::MibPerSecondPerPercent,
];

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Header { protocol: u32, name: Option<String>, columns: Vec<Named> },
    Sample { values: Vec<Option<f64>> },
}

#[derive(Deserialize)]
struct Named {
    name: String,
    unit: String,
}

/// Title and columns of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    pub name: String,
    pub columns: Vec<Column>,
}

/// Read the first line. `given` names a program that does not name itself. Err says what is wrong
/// with it.
pub fn parse_header(line: &[u8], given: &str) -> Result<Header, String> {
    let (protocol, name, named) = match serde_json::from_slice(line) {
        Ok(Line::Header { protocol, name, columns }) => (protocol, name, columns),
        Ok(Line::Sample { .. }) => return Err("its first line is no header".to_owned()),
        Err(error) => return Err(format!("its first line is no header: {error}")),
    };
    if protocol != PROTOCOL {
        return Err(format!("its header has protocol {protocol}, known is {PROTOCOL}"));
    }
    if !(1..=MOST_COLUMNS).contains(&named.len()) {
        return Err(format!(
            "its header has {} columns, possible are 1 to {MOST_COLUMNS}",
            named.len()
        ));
    }
    let name = checked_name(name.as_deref().unwrap_or(given))?;
    let mut columns: Vec<Column> = Vec::new();
    for each in named {
        let column = column(&name, &each)?;
        if columns.iter().any(|known| known.name == column.name) {
            return Err(format!("its column {:?} comes twice", each.name));
        }
        columns.push(column);
    }
    Ok(Header { name, columns })
}

fn column(program: &str, told: &Named) -> Result<Column, String> {
    let name = checked_name(&told.name)?;
    let unit = UNITS.into_iter().find(|unit| unit.name() == told.unit).ok_or_else(|| {
        let known: Vec<&str> = UNITS.iter().map(|unit| unit.name()).collect();
        format!("its column {name:?} has the unit {:?}, known are {}", told.unit, known.join(", "))
    })?;
    let label =
        name.rsplit('.').next().unwrap_or(&name).chars().take(LONGEST_LABEL).collect::<String>();
    Ok(Column::new(format!("{program}.{name}"), label, unit))
}

/// Names become parts of column names and stand in terminals.
fn checked_name(name: &str) -> Result<String, String> {
    let allowed =
        |character: char| character.is_ascii_alphanumeric() || "._-/+%:".contains(character);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(allowed) {
        let shown: String = name.chars().take(LONGEST_NAME).collect();
        return Err(format!(
            "the name {shown:?} is not of letters, digits and ._-/+%: (at most {LONGEST_NAME})"
        ));
    }
    Ok(name.to_owned())
}

/// The values of a sample line; None for whatever else it is.
pub fn parse_sample(line: &[u8], columns: usize) -> Option<Vec<f64>> {
    let Ok(Line::Sample { values }) = serde_json::from_slice(line) else { return None };
    (values.len() == columns)
        .then(|| values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"type":"header","protocol":1,"name":"zfs","interval_ms":500,"columns":[
        {"name":"arc.hits","unit":"1/s"},{"name":"size","unit":"MiB"}]}"#;

    #[test]
    fn a_header_names_the_columns() {
        let header = parse_header(HEADER.as_bytes(), "given").unwrap();
        assert_eq!(header.name, "zfs");
        assert_eq!(
            header.columns,
            [
                Column::new("zfs.arc.hits", "hits", Unit::PerSecond),
                Column::new("zfs.size", "size", Unit::Mib)
            ]
        );
        let nameless = HEADER.replace(r#""name":"zfs","#, "");
        assert_eq!(parse_header(nameless.as_bytes(), "given").unwrap().name, "given");
    }

    #[test]
    fn what_is_wrong_with_a_header_is_told() {
        let wrong = |from: &str, to: &str| {
            parse_header(HEADER.replace(from, to).as_bytes(), "g").unwrap_err()
        };
        assert!(wrong("\"1/s\"", "\"parsec\"").contains("known are percent, B, B/s"));
        assert!(wrong("arc.hits", "size").contains("twice"));
        assert!(wrong("arc.hits", "a\\u001b[2J").contains("letters"));
        assert!(wrong(":1,", ":2,").contains("protocol 2"));
        assert!(wrong("header", "sample").contains("no header"));
        assert!(parse_header(b"hello", "g").unwrap_err().contains("no header"));
        let none = r#"{"type":"header","protocol":1,"columns":[]}"#;
        assert!(parse_header(none.as_bytes(), "g").unwrap_err().contains("0 columns"));
    }

    #[test]
    fn every_unit_is_known_by_its_name() {
        for unit in UNITS {
            let named = Named { name: "a".into(), unit: unit.name().into() };
            assert_eq!(column("p", &named).unwrap().unit, unit);
        }
    }

    #[test]
    fn a_sample_has_as_many_values_as_there_are_columns() {
        let sample = br#"{"type":"sample","time":1.5,"values":[1,null,2.5]}"#;
        let values = parse_sample(sample, 3).unwrap();
        assert!(values[0] == 1.0 && values[1].is_nan() && values[2] == 2.5);
        assert_eq!(parse_sample(sample, 2), None);
        assert_eq!(parse_sample(b"{\"type\":\"sample\",\"values\":[\"1\"]}", 1), None);
        assert_eq!(parse_sample(HEADER.as_bytes(), 2), None);
    }

    #[test]
    fn no_line_is_too_strange() {
        bolero::check!(name = "lines").for_each(|line: &[u8]| {
            let given = String::from_utf8_lossy(line);
            if let Ok(header) = parse_header(line, &given) {
                assert!((1..=MOST_COLUMNS).contains(&header.columns.len()));
                let plain = |name: &str| name.len() <= 2 * LONGEST_NAME + 1 && name.is_ascii();
                assert!(header.columns.iter().all(|column| plain(&column.name)));
            }
            if let Some(values) = parse_sample(line, 2) {
                assert_eq!(values.len(), 2);
            }
        });
    }
}
