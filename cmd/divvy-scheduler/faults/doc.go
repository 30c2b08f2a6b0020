// Package faults breaks divvy-scheduler and what it stands on, at random, beside a real API server whose nodes are objects
// alone. A checker that reads only the API follows each revision of pods and claims, and looks whether anything was given twice,
// or taken from a pod that was on its node. A seed gives the same pods and the same faults in the same order; what happens
// between them depends on the machine.
package faults
