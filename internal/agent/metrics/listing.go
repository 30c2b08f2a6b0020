package metrics

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

var (
	gpuLabels   = []string{"gpu", "index"}
	shareLabels = []string{"gpu", "index", "namespace", "pod", "claim", "share", "tenant", "policy", "class"}
)

func gpu(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("divvy_gpu_"+name, help, append(gpuLabels[:2:2], more...), nil)
}

func share(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("divvy_share_"+name, help, shareLabels, nil)
}

// What a listing becomes.
var (
	success = prometheus.NewDesc("divvy_agent_listing_success", "Whether the agent could tell of its GPUs and tenants: 1, or 0 where what follows of them is missing.", nil, nil)
	claims  = prometheus.NewDesc("divvy_agent_prepared_claims", "Claims of the cluster that are prepared.", nil, nil)
	tenants = prometheus.NewDesc("divvy_agent_tenants", "Tenants: prepared claims, and shares of `divvy run`.", nil, nil)
	waiting = prometheus.NewDesc("divvy_agent_waiting_requests", "Requests that wait for room.", nil, nil)

	gpuInfo     = gpu("info", "A GPU of the node; always 1.", "model")
	gpuHealthy  = gpu("healthy", "Whether the GPU takes new tenants: 1, or 0 where it is not healthy.")
	gpuFault    = gpu("fault", "Why the GPU is not healthy; always 1, missing for a healthy one.", "reason")
	gpuCapacity = gpu("memory_capacity_bytes", "Memory that there is for tenants.")
	gpuGranted  = gpu("memory_granted_bytes", "Sum of the limits of the GPU's shares.")
	gpuUsed     = gpu("memory_used_bytes", "Memory in use by anybody, as the driver tells.")
	gpuCores    = gpu("granted_cores", "Sum of the guaranteed cores of the GPU's shares; 100 cores are all of its time.")
	gpuTenants  = gpu("tenants", "Tenants that have a share of the GPU.")
	gpuOutside  = gpu("outside_processes", "Processes on the GPU that are in no share.")

	shareLimit     = share("memory_limit_bytes", "Memory that the share may have.")
	shareUsed      = share("memory_used_bytes", "Memory that is charged to the share.")
	sharePeak      = share("memory_peak_bytes", "The most that was charged to the share.")
	shareCores     = share("cores", "Guaranteed cores; 100 are all of the GPU's time, 0 guarantees none.")
	shareProcesses = share("processes", "Processes of the share that have a slot.")
	shareBack      = share("held_back", "Whether a launch had to wait in the last second: 1 or 0.")
	shareTime      = share("gpu_seconds_total", "GPU time that the share used, as the agent measured it.")
	shareCharged   = share("charged_gpu_seconds_total", "GPU time that the share was charged with.")
	shareWaited    = share("waited_seconds_total", "Time that the share's launches waited for their turn.")
	shareLaunches  = share("launches_total", "Launches that the share counted.")
	shareOverdrawn = share("overdrawn_launches_total", "Launches that were let go after the longest wait.")
)

var descriptions = []*prometheus.Desc{
	success, claims, tenants, waiting,
	gpuInfo, gpuHealthy, gpuFault, gpuCapacity, gpuGranted, gpuUsed, gpuCores, gpuTenants, gpuOutside,
	shareLimit, shareUsed, sharePeak, shareCores, shareProcesses, shareBack, shareTime, shareCharged, shareWaited, shareLaunches, shareOverdrawn,
}

// patience is how long the agent may take to list, which it does in some milliseconds.
const patience = 5 * time.Second

// listing asks the agent when somebody collects.
type listing struct {
	config Config
	failed prometheus.Counter

	mu   sync.Mutex
	last *control.Listing
	at   time.Time
}

// list asks the agent, unless it was just asked: a listing looks at every tenant,
// and who reaches the port may ask as often as they like.
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
		gauge(out, gpuInfo, 1, g.UUID, index, g.Name)
		gauge(out, gpuHealthy, truth(!ill), g.UUID, index)
		if ill {
			gauge(out, gpuFault, 1, g.UUID, index, reason)
		}
		gauge(out, gpuCapacity, float64(g.Capacity), g.UUID, index)
		gauge(out, gpuGranted, float64(g.Granted), g.UUID, index)
		gauge(out, gpuUsed, float64(g.Used), g.UUID, index)
		gauge(out, gpuCores, float64(g.Cores), g.UUID, index)
		gauge(out, gpuTenants, float64(shares[g.UUID]), g.UUID, index)
		gauge(out, gpuOutside, float64(outside[g.UUID]), g.UUID, index)
	}
}

func collectShares(out chan<- prometheus.Metric, t *control.Tenant) {
	seen := map[string]bool{} // the same series twice would spoil the whole answer
	for i := range t.Shares {
		s := &t.Shares[i]
		if seen[s.UUID] {
			continue
		}
		seen[s.UUID] = true
		labels := []string{
			s.UUID, strconv.Itoa(s.Index), t.Namespace, podOf(t), t.Claim, t.Name, t.ID, string(s.Policy), string(s.Class),
		}
		gauge(out, shareLimit, float64(s.Limit), labels...)
		gauge(out, shareUsed, float64(s.Used), labels...)
		gauge(out, sharePeak, float64(s.Peak), labels...)
		gauge(out, shareCores, float64(s.Cores), labels...)
		gauge(out, shareProcesses, float64(len(s.Process)), labels...)
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

// podOf is the tenant's pod. Of a claim that several pods share none is named: they come and go, and the series would
// with them.
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

// valid makes UTF-8 of names that users gave on a command line.
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
