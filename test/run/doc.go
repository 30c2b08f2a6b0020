// Package run tests `divvy run` and the commands around it from outside: with the
// built program, a simulated machine, programs that look for the driver in every
// known way, and wrong input.
package run
