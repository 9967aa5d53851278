//! What a device is divided into, from words.

use tacita_pddm::Parameters;

use crate::arguments::{PddmProfile, PddmShape};
use crate::exit::{Failure, Outcome};

/// All profiles, in the order in which they are compared.
pub(super) const PROFILES: [PddmProfile; 5] = [
    PddmProfile::Balanced,
    PddmProfile::Fast,
    PddmProfile::Roomy,
    PddmProfile::Public,
    PddmProfile::Hidden,
];

/// Its name, as it is given.
pub(super) fn name(profile: PddmProfile) -> String {
    clap::ValueEnum::to_possible_value(&profile)
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What a profile stands for.
pub(super) fn of_profile(profile: PddmProfile) -> Parameters {
    let (public_slots, hidden_slots, public_spare, hidden_spare) = match profile {
        PddmProfile::Balanced => return Parameters::default(),
        PddmProfile::Fast => (20, 11, 500, 350),
        PddmProfile::Roomy => (20, 11, 150, 150),
        PddmProfile::Public => (24, 7, 350, 350),
        PddmProfile::Hidden => (15, 16, 350, 350),
    };
    Parameters { public_slots, hidden_slots, public_spare, hidden_spare, ..Parameters::default() }
}

/// What was asked for: a profile, and what is given besides.
pub(super) fn of(shape: &PddmShape) -> Outcome<Parameters> {
    let mut parameters = of_profile(shape.profile.unwrap_or(PddmProfile::Balanced));
    parameters.classes = shape.classes;
    if let Some(ratio) = &shape.ratio {
        (parameters.public_slots, parameters.hidden_slots) = ratio
            .split_once(':')
            .and_then(|(public, hidden)| Some((public.parse().ok()?, hidden.parse().ok()?)))
            .ok_or_else(|| {
                not_understood("ratio", ratio).with_remedy("two numbers, as in 20:11")
            })?;
    }
    if let Some(spare) = &shape.spare {
        let shares: Option<Vec<u16>> = spare.split(',').map(thousandths).collect();
        let shares = shares.filter(|shares| shares.len() <= 2).ok_or_else(|| {
            let remedy = "one share or two from 0.05 to 0.9, as in 0.35 or 0.5,0.35";
            not_understood("spare", spare).with_remedy(remedy)
        })?;
        parameters.public_spare = shares[0];
        parameters.hidden_spare = *shares.last().expect("one at least");
    }
    Ok(parameters)
}

pub(super) fn not_understood(what: &str, text: &str) -> Failure {
    Failure::usage(format!("--{what} {text}: not understood"))
}

fn thousandths(text: &str) -> Option<u16> {
    let share: f64 = text.trim().parse().ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
    (0.0..=1.0).contains(&share).then(|| (share * 1000.0).round() as u16)
}
