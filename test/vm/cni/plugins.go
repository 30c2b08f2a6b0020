//go:build plugins

package cni

// The plugins that are built from their modules: go.mod keeps their versions.
import (
	_ "github.com/containernetworking/plugins/plugins/ipam/host-local"
	_ "github.com/containernetworking/plugins/plugins/main/host-device"
	_ "github.com/containernetworking/plugins/plugins/main/ipvlan"
	_ "github.com/containernetworking/plugins/plugins/main/macvlan"
	_ "github.com/k8snetworkplumbingwg/whereabouts/cmd"
)
