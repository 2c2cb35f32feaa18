//! `plan`: the steps of a forecast in print.

use serde::Serialize;

use super::args::PlanArguments;
use super::cluster::Cluster;
use super::fault::PluginError;
use super::forecast::{End, Forecast, forecast};
use super::print::{Colour, Paint, document, show};
use super::{DONE, STUCK, scene};

/// A forecast and what it is about.
#[derive(Debug, Serialize)]
struct Report {
    namespace: String,
    name: String,
    /// The file that was read; left out: the spec that is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(flatten)]
    forecast: Forecast,
}

/// Reads, imagines, prints.
pub(super) async fn run(cluster: &Cluster, arguments: &PlanArguments) -> Result<u8, PluginError> {
    let name = arguments.target.name.as_deref();
    let resource = match &arguments.filename {
        Some(path) => scene::of_file(cluster, path, name).await?,
        None => cluster.find(name).await?,
    };
    let file = arguments.filename.as_ref().map(|path| path.display().to_string());
    let name = resource.metadata.name.clone().unwrap_or_default();
    let forecast = forecast(Box::pin(scene::load(cluster, resource)).await?);
    let report = Report {
        namespace: cluster.namespace.clone(),
        name,
        file,
        forecast,
    };
    let text = document(&report, arguments.output)?;
    show(&text.unwrap_or_else(|| print(&report, Paint::of_output())));
    Ok(match report.forecast.end {
        End::Reached => DONE,
        End::Stuck { .. } | End::Refused { .. } => STUCK,
    })
}

fn print(report: &Report, paint: Paint) -> String {
    let of = match &report.file {
        Some(file) => format!("the spec in {file}, which is not stored"),
        None => "the stored spec".to_owned(),
    };
    let name = paint.text(Colour::Bold, &report.name);
    let mut lines = vec![format!("{name} in namespace {}: {of}", report.namespace)];
    let Forecast { steps, end, notes } = &report.forecast;
    for (number, step) in steps.iter().enumerate() {
        lines.push(String::new());
        let after = step.after.as_ref().map(|after| format!("once {after}:"));
        let number = format!("{:>2}. ", number + 1);
        let mut does = step.does.iter();
        match &after {
            Some(after) => lines.push(format!("{number}{}", paint.text(Colour::Faint, after))),
            None => lines.extend(does.next().map(|first| format!("{number}{first}"))),
        }
        lines.extend(does.map(|one| format!("    {one}")));
    }
    lines.push(String::new());
    lines.push(match end {
        End::Reached if steps.is_empty() => paint.text(Colour::Green, "Nothing to do: everything is as the spec says."),
        End::Reached => paint.text(Colour::Green, "Then everything is as the spec says."),
        End::Stuck { reason, message } => {
            let text = format!("It goes no further: {reason}: {message}");
            paint.text(Colour::Red, &text)
        }
        End::Refused { reason, message } => {
            let text = format!("The spec cannot be followed: {reason}: {message}. What runs is left alone.");
            paint.text(Colour::Red, &text)
        }
    });
    lines.extend(notes.iter().map(|note| format!("Note: {note}.")));
    lines.join("\n") + "\n"
}

#[cfg(test)]
pub(super) fn printed(forecast: Forecast) -> String {
    let report = Report {
        namespace: "default".to_owned(),
        name: "pc".to_owned(),
        file: None,
        forecast,
    };
    print(&report, Paint::OFF)
}
