package agent

import (
	"context"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// Handlers are the agent's answers, for a control.Server.
func (a *Agent) Handlers() map[control.Method]control.Handler {
	return map[control.Method]control.Handler{
		control.MethodHello:   control.Handle(a.hello),
		control.MethodCreate:  control.Handle(explained(a, a.createTold)),
		control.MethodExplain: control.Handle(a.explain),
		control.MethodList:    control.Handle(a.list),
		control.MethodSet:     control.Handle(explained(a, a.set)),
		control.MethodStop:    control.Handle(a.stop),
		control.MethodSuspend: control.Handle(a.suspend),
		control.MethodResume:  control.Handle(a.resume),
		control.MethodHistory: control.Handle(a.history),

		control.MethodForms:    control.Handle(a.forms),
		control.MethodGiveForm: control.Handle(a.giveForm),
		control.MethodMIGMode:  control.Handle(a.migMode),
		control.MethodLayout:   control.Handle(a.layout),

		control.MethodTakeDevice:    control.Handle(a.takeDevice),
		control.MethodReleaseDevice: control.Handle(a.releaseDevice),
		control.MethodDevices:       control.Handle(a.devices),
		control.MethodSetFunctions:  control.Handle(a.setFunctions),
	}
}

func (a *Agent) hello(context.Context, *control.Peer, struct{}) (control.Info, error) {
	return a.config.Info, nil
}
