package exposition

import (
	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// shownShare is one share of a tenant.
type shownShare struct {
	*control.Share
	tenant *control.Tenant
	labels string
}

// shareFamily is a metric of shares, as [gpuFamily] is of GPUs.
type shareFamily struct {
	family
	value func(s *shownShare) (value float64, ok bool)
	more  func(s *shownShare) string
}

func ofShare(name string, k kind, help string, value func(s *shownShare) (float64, bool)) shareFamily {
	return shareFamily{family: family{"divvy_share_" + name, k, help}, value: value}
}

// always is a figure that every share has.
func always(of func(s *shownShare) float64) func(s *shownShare) (float64, bool) {
	return func(s *shownShare) (float64, bool) { return of(s), true }
}

// timed is a figure of GPU time. A share under MPS has none, because its processes run side by side with others, and
// neither has one that has a MIG instance alone.
func timed(of func(t *control.Time) float64) func(s *shownShare) (float64, bool) {
	return func(s *shownShare) (float64, bool) {
		if !s.divided() || s.Time == nil {
			return 0, false
		}
		return of(s.Time), true
	}
}

// turned is a figure of a swap share's turns.
func turned(of func(t *control.Turns) float64) func(s *shownShare) (float64, bool) {
	return func(s *shownShare) (float64, bool) {
		if s.Turns == nil {
			return 0, false
		}
		return of(s.Turns), true
	}
}

// suspended is a figure of a share that is off its GPUs, or on its way.
func suspended(of func(s *control.Suspended) float64) func(s *shownShare) (float64, bool) {
	return func(s *shownShare) (float64, bool) {
		if s.tenant.Suspended == nil {
			return 0, false
		}
		return of(s.tenant.Suspended), true
	}
}

// refused is a figure of refused allocations, 0 without any.
func refused(of func(r *control.Refusals) uint64) func(s *shownShare) (float64, bool) {
	return func(s *shownShare) (float64, bool) {
		if s.Refusals == nil {
			return 0, true
		}
		return float64(of(s.Refusals)), true
	}
}

// divided reports whether the GPU's time is divided among the share and others.
func (s *shownShare) divided() bool {
	return s.Backend != v1alpha1.BackendMPS && s.Backend != v1alpha1.BackendMIG
}

func seconds(nanoseconds uint64) float64 { return float64(nanoseconds) / 1e9 }

// shareInfo has what of a share can change while it lives.
var shareInfo = shareFamily{
	family: family{"divvy_share_info", gauge, "Policy, class, backend and layer of the share, which `divvy set` can change; always 1."},
	value:  always(func(*shownShare) float64 { return 1 }),
	more: func(s *shownShare) string {
		return labels("policy", string(s.Policy), "class", string(s.Class), "backend", string(s.Backend), "layer", string(s.tenant.Layer))
	},
}

var shareInstance = shareFamily{
	family: family{"divvy_share_instance_info", gauge, "MIG instance of the share; always 1, and absent for a share of a whole GPU."},
	value:  func(s *shownShare) (float64, bool) { return 1, s.Instance != nil },
	more: func(s *shownShare) string {
		return labels("instance_uuid", s.Instance.UUID, "profile", s.Instance.Profile)
	},
}

var shareFamilies = []shareFamily{
	shareInfo, shareInstance,
	ofShare("memory_limit_bytes", gauge, "Memory limit of the share.",
		always(func(s *shownShare) float64 { return float64(s.Limit) })),
	ofShare("memory_used_bytes", gauge, "Memory that the share's processes have, as reported by the driver; absent where it does not report it.",
		func(s *shownShare) (float64, bool) { return bytesOf(s.Observed) }),
	ofShare("memory_charged_bytes", gauge, "Memory that counts against the share's limit: the word of its own processes, and what the agent measured beyond it.",
		always(func(s *shownShare) float64 { return float64(s.Used) })),
	ofShare("memory_overhead_bytes", gauge, "The part of the charged memory that nobody asked for: contexts, code, local memory.",
		always(func(s *shownShare) float64 { return float64(s.Overhead) })),
	ofShare("memory_by_descriptor_bytes", gauge, "Memory charged to the share that none of its processes holds: file descriptors keep it.",
		always(func(s *shownShare) float64 { return float64(s.ByDescriptor) })),
	ofShare("memory_excess", gauge, "1 if the share has more memory than it was granted or than it tells, else 0.",
		always(func(s *shownShare) float64 { return truth(s.Excess != "") })),
	ofShare("memory_peak_bytes", gauge, "Most memory ever charged to the share: the word of its own processes.",
		always(func(s *shownShare) float64 { return float64(s.Peak) })),
	ofShare("refused_allocations_total", counter, "Allocations that were refused to the share: the word of its own processes.",
		refused(func(r *control.Refusals) uint64 { return r.Count })),
	ofShare("refused_by_gpu_total", counter, "The part of them that fitted into the share's limit and not onto the GPU.",
		refused(func(r *control.Refusals) uint64 { return r.ByGPU })),
	ofShare("refused_largest_bytes", gauge, "The largest allocation that was refused to the share, 0 without any.",
		refused(func(r *control.Refusals) uint64 { return r.Largest })),
	ofShare("swapped_bytes", gauge, "Memory of a swap share that can leave the GPU: the word of its own processes. This and what follows about turns is absent for other shares.",
		turned(func(t *control.Turns) float64 { return float64(t.Swapped) })),
	ofShare("swapped_on_gpu_bytes", gauge, "The part of it that is on the GPU, as far as the share's own processes know.",
		turned(func(t *control.Turns) float64 { return float64(t.OnGPU) })),
	ofShare("swapped_in_bytes_total", counter, "Memory that the share brought to the GPU at the beginning of its turns, without what the driver moved on its own.",
		turned(func(t *control.Turns) float64 { return float64(t.MovedIn) })),
	ofShare("swapped_out_bytes_total", counter, "Memory that the share moved to the host at the end of its turns, without what the driver moved on its own.",
		turned(func(t *control.Turns) float64 { return float64(t.MovedOut) })),
	ofShare("moving_seconds_total", counter, "Time that this took, added up over the share's processes.",
		turned(func(t *control.Turns) float64 { return seconds(t.Moving) })),
	ofShare("turn", gauge, "1 while the share may use the GPU, 0 while it waits for its turn, enters or leaves.",
		turned(func(t *control.Turns) float64 { return truth(t.State == control.TurnIn) })),
	ofShare("turns_total", counter, "Turns of the share that began since the agent started.",
		turned(func(t *control.Turns) float64 { return float64(t.Turns) })),
	ofShare("turn_waited_seconds_total", counter, "Time in which calls of the share waited for its turn: each moment counts once.",
		turned(func(t *control.Turns) float64 { return seconds(t.Held) })),
	ofShare("thrashing", gauge, "1 if the memory of the share moved for longer than it was used in the last minute, else 0.",
		turned(func(t *control.Turns) float64 { return truth(t.Thrashing != "") })),
	ofShare("suspended", gauge, "1 while the share is suspended, 0 while it leaves its GPUs or comes back; this and what follows about suspension is absent for a share that is on them.",
		suspended(func(s *control.Suspended) float64 {
			return truth(s.State == control.SuspensionOut || s.State == control.SuspensionWaiting)
		})),
	ofShare("suspended_since_seconds", gauge, "When it was suspended, or when it was to come back, as seconds since 1970.",
		suspended(func(s *control.Suspended) float64 { return float64(s.Since.UnixMilli()) / 1e3 })),
	ofShare("suspension_waits", gauge, "1 while the share waits for room on its GPUs to come back, else 0.",
		suspended(func(s *control.Suspended) float64 { return truth(s.State == control.SuspensionWaiting) })),
	ofShare("cores", gauge, "Guaranteed cores of the share: 100 is all of the GPU's time, 0 is no guarantee; absent under MPS, which guarantees none, and for a share that has a MIG instance alone.",
		func(s *shownShare) (float64, bool) { return float64(s.Cores), s.divided() }),
	ofShare("sm_ceiling_ratio", gauge, "Part of the GPU's SMs that the share can use at most, as MPS limits it; absent under other backends.",
		func(s *shownShare) (float64, bool) { return ceiling(s.Cores), s.Backend == v1alpha1.BackendMPS }),
	ofShare("processes", gauge, "Processes that use the share.",
		always(func(s *shownShare) float64 { return float64(len(s.Process)) })),
	ofShare("held_back", gauge, "1 if a launch had to wait in the last second, else 0.",
		timed(func(t *control.Time) float64 { return truth(t.HeldBack) })),
	ofShare("gpu_seconds_total", counter, "GPU time used by the share, as measured by the agent; absent under MPS, where shares run side by side, and for a share that has a MIG instance alone.",
		timed(func(t *control.Time) float64 { return seconds(t.Used) })),
	ofShare("entitled_gpu_seconds_total", counter, "GPU time that the share had a right to when all others want theirs.",
		timed(func(t *control.Time) float64 { return seconds(t.Entitled) })),
	ofShare("arbiter_error_ratio", gauge, "Part of the GPU's time by which the share's use of the last second differs from what the arbiter gave; absent for a share that was not held back.",
		func(s *shownShare) (float64, bool) {
			if !s.divided() || s.Time == nil || s.Time.Error == nil {
				return 0, false
			}
			return *s.Time.Error, true
		}),
	ofShare("misuse", gauge, "1 if the share uses GPU time otherwise than it may or says, else 0.",
		timed(func(t *control.Time) float64 { return truth(t.Fault != "") })),
	ofShare("watchdog_signals_total", counter, "Processes of the share that the agent stopped or killed for taking more than the share, since the agent started.",
		always(func(s *shownShare) float64 { return float64(s.Signalled) })),
	ofShare("charged_gpu_seconds_total", counter, "GPU time charged to the share.",
		timed(func(t *control.Time) float64 { return seconds(t.Charged) })),
	ofShare("held_back_seconds_total", counter, "Time in which the share was held back: each moment counts once, however many threads waited.",
		timed(func(t *control.Time) float64 { return seconds(t.HeldBackTotal) })),
	ofShare("yielded_seconds_total", counter, "The part of the time held back in which the share gave way to an online one.",
		timed(func(t *control.Time) float64 { return seconds(t.Yielded) })),
	ofShare("waited_seconds_total", counter, "Time that launches of the share waited, added up over its threads.",
		timed(func(t *control.Time) float64 { return seconds(t.Waited) })),
	ofShare("launches_total", counter, "Launches by the share.",
		timed(func(t *control.Time) float64 { return float64(t.Launches) })),
	ofShare("overdrawn_launches_total", counter, "Launches that ran without budget because they had waited for the longest permitted time.",
		timed(func(t *control.Time) float64 { return float64(t.Overdrawn) })),
}

// ceiling is the part of the SMs that an MPS share's cores allow.
func ceiling(cores int) float64 {
	if cores == 0 {
		return 1
	}
	return float64(cores) / 100
}

func writeShares(p *page, node string, listed *control.Listing) {
	shown := showShares(node, listed)
	for _, f := range shareFamilies {
		p.family(f.name, f.kind, f.help)
		for i := range shown {
			s := &shown[i]
			value, ok := f.value(s)
			switch {
			case !ok:
			case f.more != nil:
				p.sample(s.labels+","+f.more(s), value)
			default:
				p.sample(s.labels, value)
			}
		}
	}
}

// showShares has one share of each tenant on each GPU: the same series twice would fail the whole scrape.
func showShares(node string, listed *control.Listing) []shownShare {
	var shown []shownShare
	for i := range listed.Tenants {
		t := &listed.Tenants[i]
		seen := map[string]bool{}
		of := labels("namespace", t.Namespace, "pod", podOf(t), "container", t.Container, "user", userOf(t), "claim", t.Claim, "share", t.Name, "tenant", t.ID)
		for k := range t.Shares {
			s := &t.Shares[k]
			if seen[s.UUID] {
				continue
			}
			seen[s.UUID] = true
			shown = append(shown, shownShare{Share: s, tenant: t, labels: gpuLabels(node, s.UUID, s.Index) + "," + of})
		}
	}
	return shown
}

// podOf is the tenant's pod. It is empty for a claim that several pods share: they come and go, and the series would
// change with them.
func podOf(t *control.Tenant) string {
	if len(t.Pods) != 1 {
		return ""
	}
	return t.Pods[0]
}

// userOf is the tenant's user, empty for a container of the cluster's, whose namespace is known.
func userOf(t *control.Tenant) string {
	if t.Layer == backend.LayerContainer {
		return ""
	}
	return t.User
}
