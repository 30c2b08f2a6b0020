package metrics

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/health"
)

var (
	gpuLabels   = []string{"gpu", "index"}
	shareLabels = []string{"gpu", "index", "namespace", "pod", "claim", "share", "tenant", "policy", "class"}
)

func gpu(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("divvy_gpu_"+name, help, append(gpuLabels[:2:2], more...), nil)
}

func share(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("divvy_share_"+name, help, append(shareLabels[:len(shareLabels):len(shareLabels)], more...), nil)
}

// The metrics that are read from a listing.
var (
	success = prometheus.NewDesc("divvy_agent_listing_success", "1 if the agent's last listing succeeded; 0 if the metrics of GPUs and tenants are missing from this scrape.", nil, nil)
	claims  = prometheus.NewDesc("divvy_agent_prepared_claims", "ResourceClaims that are prepared on this node.", nil, nil)
	tenants = prometheus.NewDesc("divvy_agent_tenants", "Tenants: prepared claims and commands under `divvy run`.", nil, nil)
	waiting = prometheus.NewDesc("divvy_agent_waiting_requests", "Requests of `divvy run --wait` that wait for room.", nil, nil)

	gpuForm     = gpu("form", "Backend of the GPU's shares, or the one that it is given; always 1, and absent where its first share decides.", "form")
	gpuReplicas = gpu("replicas", "Most shares that the GPU is given; absent where as many may be there as fit.")
	gpuInfo     = gpu("info", "Model of a GPU of the node; always 1.", "model")
	gpuHealthy  = gpu("healthy", "1 if the GPU is healthy and takes new tenants, else 0.")
	gpuFault    = gpu("fault", "Why the GPU is faulty; always 1, and absent for a healthy GPU.", "reason")
	gpuCapacity = gpu("memory_capacity_bytes", "Memory available to tenants.")
	gpuGranted  = gpu("memory_granted_bytes", "Sum of the memory limits of the GPU's shares.")
	gpuUsed     = gpu("memory_used_bytes", "Memory in use by all processes, as reported by the driver; absent while it does not answer.")
	gpuExcess   = gpu("memory_excess", "1 if more of the GPU's memory is in use than anybody accounts for, else 0.")
	gpuCores    = gpu("granted_cores", "Sum of the guaranteed cores of the GPU's shares; 100 is all of its time.")
	gpuTenants  = gpu("tenants", "Tenants with a share of the GPU.")
	gpuOutside  = gpu("outside_processes", "Processes that use the GPU without a share; absent while the driver does not answer.")

	gpuMIG = gpu("mig_mode", "1 if the GPU is in MIG mode, else 0.")

	shareInstance = share("instance_info", "MIG instance of the share; always 1, and absent for a share of a whole GPU.", "instance", "profile")

	shareLimit     = share("memory_limit_bytes", "Memory limit of the share.")
	shareUsed      = share("memory_used_bytes", "Memory that the share's processes have, as reported by the driver; absent where it does not report it.")
	shareBooked    = share("memory_charged_bytes", "Memory that counts against the share's limit: the word of its own processes, and what the agent measured beyond it.")
	shareOverhead  = share("memory_overhead_bytes", "The part of the charged memory that nobody asked for: contexts, code, local memory.")
	shareKept      = share("memory_by_descriptor_bytes", "Memory charged to the share that none of its processes holds: file descriptors keep it.")
	shareExcess    = share("memory_excess", "1 if the share has more memory than it was granted or than it tells, else 0.")
	sharePeak      = share("memory_peak_bytes", "Most memory ever charged to the share: the word of its own processes.")
	shareCores     = share("cores", "Guaranteed cores of the share: 100 is all of the GPU's time, 0 is no guarantee; absent under MPS, which guarantees none, and for a share that has a MIG instance alone.")
	shareCeiling   = share("sm_ceiling_ratio", "Part of the GPU's SMs that the share can use at most, as MPS limits it; absent under other backends.")
	shareProcesses = share("processes", "Processes that use the share.")
	shareBack      = share("held_back", "1 if a launch had to wait in the last second, else 0.")
	shareTime      = share("gpu_seconds_total", "GPU time used by the share, as measured by the agent; absent under MPS, where shares run side by side, and for a share that has a MIG instance alone.")
	shareCharged   = share("charged_gpu_seconds_total", "GPU time charged to the share.")
	shareWaited    = share("waited_seconds_total", "Time that launches of the share waited.")
	shareLaunches  = share("launches_total", "Launches by the share.")
	shareOverdrawn = share("overdrawn_launches_total", "Launches that ran without budget because they had waited for the longest permitted time.")
)

var descriptions = []*prometheus.Desc{
	success, claims, tenants, waiting,
	gpuForm, gpuReplicas, gpuInfo, gpuHealthy, gpuFault, gpuCapacity, gpuGranted, gpuUsed, gpuExcess, gpuCores, gpuTenants, gpuOutside, gpuMIG,
	instanceInfo, instanceUsable, instanceCapacity, instanceUsed, instanceMultiprocessors, instanceTenants, instanceOutside,
	shareInstance, shareLimit, shareUsed, shareBooked, shareOverhead, shareKept, shareExcess, sharePeak, shareCores, shareCeiling, shareProcesses, shareBack, shareTime, shareCharged, shareWaited, shareLaunches, shareOverdrawn,
}

// listTimeout bounds a listing, which takes some milliseconds.
const listTimeout = 5 * time.Second

// listing asks the agent when somebody collects.
type listing struct {
	config Config
	failed prometheus.Counter

	mu   sync.Mutex
	last *control.Listing
	at   time.Time
}

// list asks the agent unless it was asked just now: a listing looks at every tenant, and
// anybody who reaches the port may scrape as often as they like.
func (l *listing) list(ctx context.Context) (*control.Listing, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && time.Since(l.at) < l.config.Fresh {
		return l.last, nil
	}
	listed, err := l.config.Source.Listing(ctx)
	if err != nil {
		return nil, err
	}
	l.last, l.at = listed, time.Now()
	return listed, nil
}

// Describe implements prometheus.Collector.
func (l *listing) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (l *listing) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	listed, err := l.list(ctx)
	if err != nil {
		l.failed.Inc()
		l.config.Log.WarnContext(ctx, "cannot list for metrics", "error", err)
		gauge(out, success, 0)
		return
	}
	gauge(out, success, 1)
	held := 0
	for i := range listed.Tenants {
		if listed.Tenants[i].Claim != "" {
			held++
		}
	}
	gauge(out, claims, float64(held))
	gauge(out, tenants, float64(len(listed.Tenants)))
	gauge(out, waiting, float64(len(listed.Waiting)))
	l.collectGPUs(out, listed)
	for i := range listed.Tenants {
		collectShares(out, &listed.Tenants[i])
	}
}

func (l *listing) collectGPUs(out chan<- prometheus.Metric, listed *control.Listing) {
	var faults map[string]string
	if l.config.Faults != nil {
		faults = l.config.Faults()
	}
	shares, outside := map[string]int{}, map[string]int{}
	for i := range listed.Tenants {
		counted := map[string]bool{}
		for _, s := range listed.Tenants[i].Shares {
			if !counted[s.UUID] {
				shares[s.UUID]++
			}
			counted[s.UUID] = true
		}
	}
	for _, o := range listed.Outside {
		outside[o.UUID]++
	}
	for _, g := range listed.GPUs {
		index := strconv.Itoa(g.Index)
		reason, ill := faults[g.UUID]
		ill = ill && (!g.MIG || reason != health.MIGMode) // its instances are served
		gauge(out, gpuInfo, 1, g.UUID, index, g.Name)
		if g.Form != "" {
			gauge(out, gpuForm, 1, g.UUID, index, string(g.Form))
		}
		if g.Replicas > 0 {
			gauge(out, gpuReplicas, float64(g.Replicas), g.UUID, index)
		}
		gauge(out, gpuHealthy, truth(!ill), g.UUID, index)
		if ill {
			gauge(out, gpuFault, 1, g.UUID, index, reason)
		}
		gauge(out, gpuCapacity, float64(g.Capacity), g.UUID, index)
		gauge(out, gpuGranted, float64(g.Granted), g.UUID, index)
		if g.Used != nil { // a figure that is not known is absent
			gauge(out, gpuUsed, float64(*g.Used), g.UUID, index)
			gauge(out, gpuOutside, float64(outside[g.UUID]), g.UUID, index)
		}
		gauge(out, gpuExcess, truth(g.Excess != ""), g.UUID, index)
		gauge(out, gpuCores, float64(g.Cores), g.UUID, index)
		gauge(out, gpuTenants, float64(shares[g.UUID]), g.UUID, index)
		gauge(out, gpuMIG, truth(g.MIG), g.UUID, index)
		collectInstances(out, &g, index)
	}
}

func collectShares(out chan<- prometheus.Metric, t *control.Tenant) {
	seen := map[string]bool{} // a duplicate series would fail the whole scrape
	for i := range t.Shares {
		s := &t.Shares[i]
		if seen[s.UUID] {
			continue
		}
		seen[s.UUID] = true
		labels := []string{
			s.UUID, strconv.Itoa(s.Index), t.Namespace, podOf(t), t.Claim, t.Name, t.ID, string(s.Policy), string(s.Class),
		}
		if i := s.Instance; i != nil {
			gauge(out, shareInstance, 1, append(labels[:len(labels):len(labels)], i.UUID, i.Profile)...)
		}
		gauge(out, shareLimit, float64(s.Limit), labels...)
		gauge(out, shareBooked, float64(s.Used), labels...)
		gauge(out, shareOverhead, float64(s.Overhead), labels...)
		if s.Observed != nil {
			gauge(out, shareUsed, float64(*s.Observed), labels...)
		}
		gauge(out, shareExcess, truth(s.Excess != ""), labels...)
		gauge(out, shareKept, float64(s.ByDescriptor), labels...)
		gauge(out, sharePeak, float64(s.Peak), labels...)
		gauge(out, shareProcesses, float64(len(s.Process)), labels...)
		if s.Backend == v1alpha1.BackendMPS { // its processes run side by side with others: no time is theirs alone
			gauge(out, shareCeiling, ceiling(s.Cores), labels...)
			continue
		}
		if s.Backend == v1alpha1.BackendMIG { // the instance's SMs are its own
			continue
		}
		gauge(out, shareCores, float64(s.Cores), labels...)
		if s.Time == nil {
			continue
		}
		gauge(out, shareBack, truth(s.Time.HeldBack), labels...)
		counter(out, shareTime, float64(s.Time.Used)/1e9, labels)
		counter(out, shareCharged, float64(s.Time.Charged)/1e9, labels)
		counter(out, shareWaited, float64(s.Time.Waited)/1e9, labels)
		counter(out, shareLaunches, float64(s.Time.Launches), labels)
		counter(out, shareOverdrawn, float64(s.Time.Overdrawn), labels)
	}
}

// ceiling is the part of the SMs that an MPS share's cores allow.
func ceiling(cores int) float64 {
	if cores == 0 {
		return 1
	}
	return float64(cores) / 100
}

// podOf is the tenant's pod. It is empty for a claim that several pods share: they come and go, and the series would
// change with them.
func podOf(t *control.Tenant) string {
	if len(t.Pods) != 1 {
		return ""
	}
	return t.Pods[0]
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, valid(labels)...)
}

func counter(out chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels []string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, valid(labels)...)
}

// valid replaces invalid UTF-8 in names that users gave on a command line.
func valid(labels []string) []string {
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "?")
	}
	return labels
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
