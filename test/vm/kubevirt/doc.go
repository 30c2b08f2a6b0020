// Package kubevirt holds what Divvy prints for KubeVirt against KubeVirt's own types: no field is unknown to them. It runs no
// KubeVirt. A module of its own, for these types are no dependency of the programs.
package kubevirt
