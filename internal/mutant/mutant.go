// Package mutant marks the places where one line of the protocol can be broken on purpose, so that a test can show that
// the suite notices. In a normal build [Is] is a constant false and the broken branch is not compiled in. With the build
// tag "mutate", the branch named by the environment variable STELE_MUTANT is taken.
package mutant
