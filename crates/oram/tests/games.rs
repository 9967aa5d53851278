//! Games with whole clients and a whole server: real frames, simulated time.

mod games {
    mod answers;
    mod world;
}
