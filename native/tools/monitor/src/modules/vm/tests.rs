use super::*;

#[test]
fn names_of_columns_are_unique_and_rows_are_as_long() {
    let mut files = Files::new("/nonexistent");
    let choices = crate::choices::Choices::default();
    let mut module = open(&mut Setup { files: &mut files, choices: &choices }).unwrap();
    let table = module.row_table().unwrap().clone();
    let groups = module.groups().to_vec();
    let all: Vec<_> =
        groups.iter().flat_map(|group| &group.columns).chain(&table.columns).collect();
    let mut names: Vec<_> = all.iter().map(|column| &column.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all.len());
    let mut row = Vec::new();
    module.sample(&files, Moment { monotonic: 1.0, time: 1.0, span: f64::NAN }, &mut row);
    assert_eq!(row.len(), groups[0].columns.len());
    assert!(row.iter().all(|value| *value == 0.0), "no guest does nothing");
}

#[test]
fn a_sum_is_of_those_who_tell() {
    let rows = |values: &[f64]| -> Vec<_> {
        values.iter().map(|value| (String::new(), vec![*value])).collect()
    };
    assert_eq!(sum_known(&rows(&[1.0, f64::NAN, 2.0]), 0), 3.0);
    assert!(sum_known(&rows(&[f64::NAN]), 0).is_nan());
    assert_eq!(sum_known(&rows(&[]), 0), 0.0);
}
