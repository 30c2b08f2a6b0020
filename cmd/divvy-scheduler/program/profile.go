package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// PluginName is the name of Divvy's plugin in profiles. It stands where those of Kubernetes have DynamicResources, which
// it wraps.
const PluginName = "Divvy"

// errProfile marks a profile in which Divvy's plugin has no place.
var errProfile = errors.New("profile without dynamic resources")

// errExtenders marks a configuration with extenders.
var errExtenders = errors.New("extenders are not asked for pods with claims for GPUs, so " + v1alpha1.SchedulerName + " takes no configuration with them; leave pods for them to another scheduler")

// requestRate is how many requests per second the scheduler makes where no configuration says: its own default of 50
// would bind no more than a dozen pods per second.
const requestRate = 2000

// configure has the scheduler read a configuration in whose profiles Divvy's plugin stands in DynamicResources' place: the
// one that was named, or Kubernetes' default. The scheduler takes a file's name, so the result is a file in memory, which
// the caller closes.
func configure(opts *options.Options) (*os.File, error) {
	loaded, err := load(opts)
	if err != nil {
		return nil, err
	}
	if len(loaded.Extenders) > 0 {
		return nil, fmt.Errorf("%w: %s", errExtenders, loaded.Extenders[0].URLPrefix)
	}
	for i := range loaded.Profiles {
		if err := place(loaded.Profiles[i].Plugins); err != nil {
			return nil, fmt.Errorf("profile %s: %w", loaded.Profiles[i].SchedulerName, err)
		}
	}
	text, err := encode(loaded)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("configuration", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "configuration")
	if _, err := file.Write(text); err != nil {
		file.Close()
		return nil, fmt.Errorf("write a file in memory: %w", err)
	}
	opts.ConfigFile = fmt.Sprintf("/proc/self/fd/%d", fd)
	return file, nil
}

// load reads the configuration that was named. Without one it is Kubernetes' default for the pods that name this
// scheduler, with a lease of its own, and the flags that Kubernetes takes only then.
func load(opts *options.Options) (*config.KubeSchedulerConfiguration, error) {
	if opts.ConfigFile != "" {
		return options.LoadConfigFromFile(klog.FromContext(context.Background()), opts.ConfigFile)
	}
	made, err := latest.Default()
	if err != nil {
		return nil, err
	}
	made.Profiles[0].SchedulerName = v1alpha1.SchedulerName
	made.LeaderElection.ResourceName = v1alpha1.SchedulerName
	made.ClientConnection.QPS = requestRate
	made.ClientConnection.Burst = 2 * requestRate
	made.ClientConnection.ContentType = runtime.ContentTypeProtobuf
	// The flags' own defaults name the stock scheduler's lease; only those that were given count.
	opts.ComponentConfig = made
	opts.ApplyDeprecated()
	opts.ApplyLeaderElectionTo(made)
	return made, nil
}

// place puts Divvy's plugin into a profile.
func place(plugins *config.Plugins) error {
	if plugins == nil {
		return errProfile
	}
	all := &plugins.MultiPoint
	named := func(name string) func(config.Plugin) bool {
		return func(p config.Plugin) bool { return p.Name == name }
	}
	all.Enabled = slices.DeleteFunc(all.Enabled, named(PluginName))
	at := slices.IndexFunc(all.Enabled, named(names.DynamicResources))
	if at < 0 {
		return fmt.Errorf("%w: leave %s where Kubernetes has it, in multiPoint; %s takes its place by itself",
			errProfile, names.DynamicResources, v1alpha1.SchedulerName)
	}
	all.Enabled[at].Name = PluginName
	// Otherwise what is missing would be added again when the scheduler reads this.
	all.Disabled = []config.Plugin{{Name: "*"}}
	for _, set := range pointsOf(plugins) {
		for i := range set.Enabled {
			if set.Enabled[i].Name == names.DynamicResources {
				set.Enabled[i].Name = PluginName
			}
		}
		for i := range set.Disabled {
			if set.Disabled[i].Name == names.DynamicResources {
				return fmt.Errorf("%w: %s is disabled at one extension point", errProfile, names.DynamicResources)
			}
		}
	}
	return nil
}

// pointsOf are the extension points at which Kubernetes has DynamicResources, and Bind, where Divvy's plugin writes claims.
func pointsOf(plugins *config.Plugins) []*config.PluginSet {
	return []*config.PluginSet{
		&plugins.PreEnqueue, &plugins.PreFilter, &plugins.Filter, &plugins.PostFilter, &plugins.Score, &plugins.Reserve,
		&plugins.Permit, &plugins.PreBind, &plugins.Bind,
	}
}

func encode(from *config.KubeSchedulerConfiguration) ([]byte, error) {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
	if !ok {
		return nil, errors.New("find a writer of YAML")
	}
	text, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, configv1.SchemeGroupVersion), from)
	if err != nil {
		return nil, fmt.Errorf("write the configuration that was read: %w", err)
	}
	return text, nil
}
