// Package dist tries the Debian package on a machine with systemd, in namespaces of its own: nothing of this machine is changed.
package dist
