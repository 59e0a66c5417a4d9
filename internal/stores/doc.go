// Package stores holds the tests of the whole library on real stores, in real processes: killed, stopped, competing for one database, behind a
// slow network, in front of a server that dies. There is nothing in it to import.
package stores
