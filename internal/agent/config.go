package agent

import (
	"log/slog"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/pacing"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/registry"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Driver is the part of NVML that the agent asks.
type Driver interface {
	Version() nvml.Version
	// Holdings has what it tells of who has memory on GPUs, in their order.
	Holdings(gpus []int) []nvml.Holding
	pacing.Driver
}

// Config is what an Agent works with.
type Config struct {
	Info     control.Info
	Backends *registry.Registry
	Driver   Driver
	// Checkpoint is the path of the file in which tenants are remembered.
	Checkpoint string
	Log        *slog.Logger
	// Rules are what users may have and do; nil are those of a machine without a configuration.
	Rules *agentconfig.Config
	// Forms are what GPUs are given; nil are those of the Rules.
	Forms *Forms
	// Modes tells the modes of GPUs for listings; it may be nil.
	Modes Modes
	// Gauges tells what GPUs do for listings; it may be nil.
	Gauges Gauges
	// SwapMemory is how much host memory swapped and suspended shares may have together, in bytes; 0 allows none.
	SwapMemory uint64
	// Unswappable is why a GPU can have no swap shares, and Unsuspendable why no share of the machine can be suspended, ""
	// where that is possible; nil is possible. The channel, which is the same for all GPUs, is closed when more is known.
	Unswappable   func(gpu backend.GPU) (why string, learned <-chan struct{})
	Unsuspendable func() string
	// Misuse is what is done about shares that take more of a GPU than they may, and about processes without a share of listed users.
	Misuse agentconfig.Outside
	// Checkpointer takes shares off their GPUs; nil where there is no driver.
	Checkpointer Checkpointer
	// Listed reports whether processes of a user that are on a GPU without a share are
	// answered as Misuse says; nil lists nobody. System users are never answered.
	Listed   func(uid int) bool
	Interval time.Duration // between looks at every tenant and at the driver
	Now      func() time.Time
	// Locks hold the GPUs on which there are shares; nil for an agent that holds all of them while it runs.
	Locks Locks
	// Permit returns why the agent must not grant anything now; nil always permits.
	Permit func() error
	// Tell writes a line to where a user's process writes its errors, as far as that takes
	// one, and returns soon whether it does or not. It may be nil.
	Tell func(id process.ID, uid int, line string) error
	// Workers runs tenants' workers as users of their own; nil where who asks for a tenant starts its worker.
	Workers Workers
	// Devices are the CDI devices of lasting tenants; nil for an agent that makes none.
	Devices Devices
	// Machines are the devices that virtual machines have; nil for an agent that gives none.
	Machines Machines
	// Functions enables virtual functions; nil for an agent that enables none.
	Functions Functions
	// LetGo calls do while no process of the agent's has the driver open; nil where none ever has.
	LetGo func(do func() error) error
	// Renew has who asks the driver next find its GPUs anew; it waits for nobody whom the driver does not answer. It may be nil.
	Renew func()
	// Returned is called when a GPU came back from a virtual machine which was not there when the agent started; it may be nil.
	Returned func(uuid string)
	// History keeps what shares did; nil keeps nothing.
	History History
	// Commands is what of command lines the history has.
	Commands agentconfig.Commands
	// Gathered is closed when those have come back who waited for an agent whose queue is lost; nil says so after a while.
	Gathered <-chan struct{}
	// Step is called after each step of Prepare, Release and creating a share, so that a test can end the agent there; it may be nil.
	Step func(name string)
}
