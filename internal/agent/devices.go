package agent

import (
	"context"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// devices lists what virtual machines have.
func (a *Agent) devices(context.Context, *control.Peer, struct{}) (*control.Devices, error) {
	all := control.Devices{Info: a.config.Info, Claims: a.describeDevices(), Functions: a.enabledFunctions()}
	if a.config.Machines != nil {
		if err := a.config.Machines.Unread(); err != nil {
			all.Unread = err.Error()
		}
	}
	return &all, nil
}

func (a *Agent) describeDevices() []control.DeviceClaim {
	described := []control.DeviceClaim{}
	all, _ := a.Devices()
	for _, c := range all {
		described = append(described, a.describeDevice(c))
	}
	return described
}

func (a *Agent) describeDevice(c claims.Claim) control.DeviceClaim {
	v := control.DeviceClaim{Want: c.Want, Given: c.Given, Times: c.Times, User: claimantOf(c), Foreign: c.Foreign, Fault: c.Fault}
	if gpus := a.among([]pci.Address{c.Device}); len(gpus) > 0 {
		v.Index = &gpus[0].Index
	}
	return v
}

// claimantOf is the name of whose a claim is, "" where the ledger that had it is lost.
func claimantOf(c claims.Claim) string {
	if c.Foreign {
		return ""
	}
	return process.UserName(c.UID)
}
