// Package users tests one server with several users from outside: a system agent,
// six users and root, each with a uid of their own, on a simulated machine that
// stands where the dynamic linker finds a driver. It needs root, which makes mount
// and pid namespaces for each server: nothing of the host is changed, and nothing is
// left when a test ends or is killed.
package users
