// Package install installs the chart into a real cluster, changes it under a running tenant and takes it away again.
package install
