// Package run tries `divvy run` and the commands around it as their users do:
// the built program, a simulated machine, programs that look for the driver in
// every way there is, and input that cannot work.
package run
