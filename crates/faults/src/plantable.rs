//! The macro.

/// Makes an enum the faults of a crate: in its module there are from then on
///
/// - `planted(Fault) -> bool` for the code, which asks at the place where the right thing is done, and
///   `any_planted() -> bool`;
/// - `plant(Fault) -> Planted` for tests, with the crate's feature `faults` only: the fault is
///   planted in this thread until the [`crate::Planted`] is dropped. Threads that it starts have none.
///
/// `if test;` in front of it takes the place of that feature: for a program, which is tested as it is
/// shipped, and whose unit tests alone may plant.
///
/// ```
/// mod faults {
///     tacita_faults::plantable! {
///         /// What may be wrong with a sum.
///         pub enum Fault {
///             /// It is one too much.
///             OneMore,
///         }
///     }
/// }
/// use faults::{Fault, planted};
///
/// fn sum(a: u32, b: u32) -> u32 {
///     a + b + u32::from(planted(Fault::OneMore))
/// }
/// assert_eq!(sum(2, 2), 4);
/// ```
#[macro_export]
macro_rules! plantable {
    ($(#[$about:meta])* pub enum $Fault:ident { $($what:tt)+ }) => {
        $crate::plantable! { if feature = "faults"; $(#[$about])* pub enum $Fault { $($what)+ } }
    };
    (
        if $may:meta;
        $(#[$about:meta])* pub enum $Fault:ident { $($(#[$what:meta])* $Name:ident),+ $(,)? }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $Fault {
            $($(#[$what])* $Name),+
        }

        #[cfg($may)]
        ::std::thread_local! {
            static PLANTED: ::std::cell::Cell<Option<$Fault>> =
                const { ::std::cell::Cell::new(None) };
        }

        /// Plants a fault in this thread until what is returned is dropped.
        #[cfg($may)]
        pub fn plant(fault: $Fault) -> $crate::Planted<$Fault> {
            $crate::Planted::new(&PLANTED, fault)
        }

        /// Whether a fault is planted.
        #[cfg($may)]
        pub(crate) fn planted(fault: $Fault) -> bool {
            PLANTED.get() == Some(fault)
        }

        /// Whether any fault is planted: whoever shares work among threads does all of it here then.
        #[cfg($may)]
        #[allow(dead_code, reason = "few crates share work")]
        pub(crate) fn any_planted() -> bool {
            PLANTED.get().is_some()
        }

        /// Nothing is planted in a build that people use.
        #[cfg(not($may))]
        pub(crate) const fn planted(_: $Fault) -> bool {
            false
        }

        /// The same of all of them.
        #[cfg(not($may))]
        #[allow(dead_code, reason = "few crates share work")]
        pub(crate) const fn any_planted() -> bool {
            false
        }
    };
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the faults of a test are nobody else's")]
mod tests {
    crate::plantable! {
        /// Two of them.
        pub enum Fault {
            /// One.
            One,
            /// Another.
            Other,
        }
    }

    mod program {
        crate::plantable! {
            if test;
            /// One.
            pub enum Fault {
                /// It.
                It,
            }
        }
    }

    #[test]
    fn a_program_has_them_in_its_unit_tests() {
        let it = program::plant(program::Fault::It);
        assert!(program::planted(program::Fault::It) && program::any_planted());
        drop(it);
        assert!(!program::planted(program::Fault::It));
    }

    #[test]
    #[cfg(not(feature = "faults"))]
    fn nothing_is_planted_without_the_feature() {
        const NEVER: [bool; 3] = [planted(Fault::One), planted(Fault::Other), any_planted()];
        assert_eq!(NEVER, [false; 3]);
    }

    #[test]
    #[cfg(feature = "faults")]
    fn a_fault_is_planted_in_its_thread_until_its_guard_is_dropped() {
        let all = || [planted(Fault::One), planted(Fault::Other)];
        let one = plant(Fault::One);
        assert_eq!((all(), any_planted()), ([true, false], true));
        assert_eq!(std::thread::spawn(all).join().unwrap(), [false; 2]);
        let other = plant(Fault::Other);
        assert_eq!(all(), [false, true]);
        drop(other);
        assert_eq!(all(), [true, false], "as it was before");
        drop(one);
        assert_eq!((all(), any_planted()), ([false; 2], false));
        let held = std::panic::catch_unwind(|| {
            let _planted = plant(Fault::One);
            panic!("a test fails");
        });
        assert!(held.is_err());
        assert_eq!(all(), [false; 2], "whatever happens");
    }
}
