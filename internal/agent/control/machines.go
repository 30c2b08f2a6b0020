package control

import (
	"context"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// The methods about devices for virtual machines.
const (
	MethodTakeDevice    Method = "take-device"    // TakeDeviceParams → DeviceClaim
	MethodReleaseDevice Method = "release-device" // ReleaseDeviceParams → DeviceReleased, when all is put back
	MethodDevices       Method = "devices"        // nothing → Devices
)

// TakeDeviceParams claims a device for a virtual machine.
type TakeDeviceParams struct {
	// Name is the claim's; empty has the agent choose one.
	Name string `json:"name,omitempty"`
	// GPU is the index or the UUID of a GPU, PCI the address of any PCI function. There is one of them.
	GPU string       `json:"gpu,omitempty"`
	PCI *pci.Address `json:"pci,omitempty"`
	// Also are other cards of the same IOMMU group that may go, each by one of its functions.
	Also []pci.Address    `json:"also,omitempty"`
	Form v1alpha1.Backend `json:"form"`
	// Type is that of a vGPU.
	Type string `json:"type,omitempty"`
	// UID is whose virtual machine it is for.
	UID int `json:"uid"`
}

// ReleaseDeviceParams ends a claim.
type ReleaseDeviceParams struct {
	Name string `json:"name"`
}

// DeviceReleased is what became of a claim that has ended.
type DeviceReleased struct {
	// Left is what somebody else changed of its devices meanwhile, which was left.
	Left []string `json:"left,omitempty"`
}

// DeviceClaim is a device that somebody has for a virtual machine.
type DeviceClaim struct {
	claims.Want
	claims.Given
	claims.Times
	// User is the name of whose virtual machine it is for.
	User string `json:"user"`
	// Index is that of the GPU, nil for what is no GPU that the agent serves now.
	Index *int `json:"index,omitempty"`
	// Existed is true in the answer to who asks for what the claim has already.
	Existed bool `json:"existed,omitempty"`
	// Foreign is true for what somebody else than this command has, such as a claim of a cluster.
	Foreign bool `json:"foreign,omitempty"`
	// Fault says what keeps it from being taken or put back, such as who holds the device; empty where nothing does.
	Fault string `json:"fault,omitempty"`
}

// State is a word about the claim.
func (d *DeviceClaim) State() string {
	switch {
	case d.Fault != "" && d.Phase != claims.Held:
		return "stuck"
	case d.Fault != "":
		return "fault"
	}
	return string(d.Phase)
}

// Devices are those that virtual machines have.
type Devices struct {
	Info   Info          `json:"info"`
	Claims []DeviceClaim `json:"claims"`
	// Functions are the virtual functions that Divvy enabled.
	Functions []Functions `json:"functions"`
	// Unread is why the book of devices cannot be read, "" where it can. Then there may be more of both than is listed.
	Unread string `json:"unread,omitempty"`
}

// TakeDevice claims a device for a virtual machine.
func (c *Client) TakeDevice(ctx context.Context, p TakeDeviceParams) (*DeviceClaim, error) {
	var d DeviceClaim
	if err := c.call(ctx, MethodTakeDevice, p, &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// ReleaseDevice ends a claim.
func (c *Client) ReleaseDevice(ctx context.Context, name string) (*DeviceReleased, error) {
	var r DeviceReleased
	if err := c.call(ctx, MethodReleaseDevice, ReleaseDeviceParams{Name: name}, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// Devices lists the devices that virtual machines have.
func (c *Client) Devices(ctx context.Context) (*Devices, error) {
	var d Devices
	if err := c.call(ctx, MethodDevices, nil, &d); err != nil {
		return nil, err
	}
	return &d, nil
}
