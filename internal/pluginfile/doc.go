// Package pluginfile reads the configuration file of NVIDIA's device plugin and GPU feature discovery (`version: v1`)
// and says what becomes of each of its keys: it works here, it has no effect, or it is refused, each with a reason.
//
// The file is read strictly. A key that no published version has is an error, and one in the wrong place is an error
// that names the right one.
//
// The package is pure. Meanings were read in k8s-device-plugin v0.12.0 to v0.20.0, api/config/v1 and README.
package pluginfile
