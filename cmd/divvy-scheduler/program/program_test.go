package program

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// What is not known ends the program with its name.
func TestStrictArguments(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"flag":          {[]string{"--no-such-flag"}, "unknown flag: --no-such-flag"},
		"argument":      {[]string{"serve"}, `"serve" is no flag`},
		"key":           {[]string{"--config", file(head + "noSuchKey: 1\n")}, `unknown field "noSuchKey"`},
		"no file":       {[]string{"--config", "/no/such/file"}, "no such file"},
		"extenders":     {[]string{"--config", file(head + "extenders: [{urlPrefix: \"http://127.0.0.1:1\", filterVerb: filter}]\n")}, "extenders are not asked"},
		"without place": {[]string{"--config", file(head + "profiles: [{plugins: {multiPoint: {disabled: [{name: DynamicResources}]}}}]\n")}, "profile without dynamic resources"},
	} {
		command := newCommand(nil)
		var said bytes.Buffer
		command.SetArgs(test.args)
		command.SetOut(&said)
		command.SetErr(&said)
		err := command.Execute()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

// Divvy's plugin stands exactly where Kubernetes has DynamicResources, before the plugin that binds all other pods; what
// the scheduler reads back says the same.
func TestPlace(t *testing.T) {
	defaults, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(defaults.Profiles[0].Plugins.MultiPoint.Enabled)
	at := slices.IndexFunc(want, func(p config.Plugin) bool { return p.Name == names.DynamicResources })
	binds := slices.IndexFunc(want, func(p config.Plugin) bool { return p.Name == names.DefaultBinder })
	if at < 0 || binds < at {
		t.Fatalf("Kubernetes' own order has changed: %v", want)
	}
	want[at].Name = PluginName
	opts := options.NewOptions()
	file, err := configure(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	opts.ComponentConfig = defaults
	for range 2 { // a configuration that was written by the program is read as it was
		read, err := load(opts)
		if err != nil {
			t.Fatal(err)
		}
		profile := read.Profiles[0]
		if profile.SchedulerName != v1alpha1.SchedulerName || read.LeaderElection.ResourceName != v1alpha1.SchedulerName {
			t.Errorf("it schedules for %s and leads %s", profile.SchedulerName, read.LeaderElection.ResourceName)
		}
		if !slices.Equal(profile.Plugins.MultiPoint.Enabled, want) {
			t.Errorf("got %v, want %v", profile.Plugins.MultiPoint.Enabled, want)
		}
	}
	if err := place(&config.Plugins{}); !errors.Is(err, errProfile) {
		t.Errorf("a profile without plugins: %v", err)
	}
}

// Pods that are not for Divvy, and claims of other drivers alone, are scheduled as by the scheduler of Kubernetes.
func TestOthersPods(t *testing.T) {
	f := newFleet(t, 3, 2)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for _, name := range []string{"plain-1", "plain-2", "plain-3"} {
		f.create(pod(name))
	}
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "nic", Namespace: namespace},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "nic", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: otherDriver}},
		}}},
	}
	if _, err := f.client.ResourceV1().ResourceClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	with := pod("with-nic")
	with.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "nic", ResourceClaimName: &claim.Name}}
	f.create(with)
	pods := f.bound(4)
	got, err := f.client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil || got.Status.Allocation == nil || len(got.Status.ReservedFor) != 1 {
		t.Fatalf("the claim has %+v: %v", got.Status, err)
	}
	// A start without faults logs none.
	if log := f.logs(); regexp.MustCompile(`(?m)^E\d{4} `).MatchString(log) {
		t.Error(log)
	}
	for i := range pods {
		if pods[i].Name == with.Name && got.Status.Allocation.Devices.Results[0].Pool != pods[i].Spec.NodeName {
			t.Errorf("pod on %s, device on %s", pods[i].Spec.NodeName, got.Status.Allocation.Devices.Results[0].Pool)
		}
	}
}
