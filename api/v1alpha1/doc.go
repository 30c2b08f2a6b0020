// Package v1alpha1 holds what users write: requests for shares of GPUs, their
// defaults and their one validation. Command line, agent, webhook and cluster
// driver all call [ShareRequest.Validate]; none of them has rules of its own.
//
// Whether a valid request fits on a machine is not decided here.
package v1alpha1
