package dra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatav1alpha1 "k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// metadataKind begins the CDI devices by which containers get the files that tell of a claim's devices (KEP-5304).
const metadataKind = v1alpha1.Driver + "/metadata="

// metadata are the options by which such files are written. Their versions must be named: the library has no default.
func (d *Driver) metadata() []kubeletplugin.Option {
	if d.config.Machines == nil {
		return nil
	}
	return []kubeletplugin.Option{
		kubeletplugin.EnableDeviceMetadata(true), kubeletplugin.MetadataVersions([]schema.GroupVersion{metadatav1alpha1.SchemeGroupVersion}...),
		kubeletplugin.CDIDirectory(d.config.CDIDir),
	}
}

// withFiles refuses claims of virtual machines whose files could not be written. The library only logs that, and the
// machine would start without a device.
func (d *Driver) withFiles(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := d.hear(ctx, request, info, handle)
	if prepared, ok := answer.(*drapb.NodePrepareResourcesResponse); ok && err == nil {
		for uid, claim := range prepared.Claims {
			if name := fileless(claim.GetDevices()); name != "" && claim.GetError() == "" {
				claim.Error = fmt.Sprintf("the file that tells a virtual machine of %s could not be written: see whether %s has room", name, d.config.PluginDir)
				claim.Devices = nil
				d.config.Log.WarnContext(ctx, "cannot write a claim's metadata", "claim", uid, "device", name)
			}
		}
	}
	return answer, err
}

// fileless is the name of a device for a virtual machine that comes without its file, "" for none.
func fileless(devices []*drapb.Device) string {
	has := func(d *drapb.Device, kind string) bool {
		return slices.ContainsFunc(d.GetCdiDeviceIds(), func(id string) bool { return strings.HasPrefix(id, kind) })
	}
	for _, d := range devices {
		if has(d, v1alpha1.CDIMachineKind+"=") && !has(d, metadataKind) {
			return d.GetDeviceName()
		}
	}
	return ""
}

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
