// Package dist tries the Debian package on a machine with systemd, in namespaces of its own, and runs the commands of docs/lab.md and
// docs/day-two.md there: nothing of this machine is changed.
package dist
