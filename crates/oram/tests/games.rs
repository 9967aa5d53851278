//! Games with whole clients and a whole server: real frames, simulated time.

#![cfg(feature = "faults")]

mod games {
    mod answers;
    mod crashes;
    mod hostile;
    mod proxy;
    mod shapes;
    mod world;
}
