// Package sim holds the simulation: the whole library on a store that fails, in virtual time, driven by one seed. There is nothing in it to
// import; docs/simulation.md says how to run it.
//
// # One run
//
// A world (world_test.go) is a database in a store, some processes that own it or want to, clients that submit work, readers and
// subscribers. It runs in a bubble of testing/synctest. Again and again the scheduler lets everybody come to rest and then lets the seed
// pick what happens next: one call to the store gets its effect or its answer, or goes wrong (store_test.go); a client does something
// (client_test.go); a reader does (reader_test.go); a process is started, stopped, woken, killed or closed, or the machine loses its power (proc_test.go); time
// passes. The seed's random numbers are the scheduler's alone.
//
// Nothing else happens by chance either: a run is made in WebAssembly (guest_test.go), in a fresh instance on a machine without threads, preemption or a real clock
// (host_test.go), so that a seed always gives the same transcript, to the last byte (sim_test.go).
//
// Two kinds of store are used. In most runs it is log/mem, under a network that loses, delays and doubles what is sent; in the others it is log/fs on a
// machine of log/fs/crashfs that fails and loses its power.
//
// In the end the faults stop, and what must hold is compared with the log (check_test.go, linear_test.go), which a reader proves from its
// beginning.
//
// Sealing is not simulated yet: the indexer will be one more kind of process (proc_test.go), and check_test.go will read chunks before the log.
package sim
