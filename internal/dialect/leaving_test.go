package dialect

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestGroupsDoNotBreak asks for GPUs in pods that start together with others under a scheduler they would leave.
func TestGroupsDoNotBreak(t *testing.T) {
	translator := newTranslator(t, "{nvidia: {}, volcano: {}, kai: {}, koordinator: {}, vgpu-manager: {}}")
	one := `containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]`
	for name, c := range map[string]struct{ meta, scheduler, group string }{
		"worker of a Volcano job":        {`annotations: {scheduling.k8s.io/group-name: mpi-0}`, "volcano", "mpi-0"},
		"Volcano's newer word":           {`annotations: {scheduling.volcano.sh/group-name: mpi-1}`, "volcano", "mpi-1"},
		"gang of Koordinator":            {`annotations: {gang.scheduling.koordinator.sh/name: g}`, "koord-scheduler", "g"},
		"pod group":                      {`labels: {scheduling.x-k8s.io/pod-group: pg}`, "vgpu-scheduler", "pg"},
		"KAI groups it":                  {`ownerReferences: [{kind: MPIJob, name: train}]`, "kai-scheduler", "train"},
		"run:ai groups it":               {`ownerReferences: [{kind: PyTorchJob, name: train}]`, "runai-scheduler", "train"},
		"a group of the stock scheduler": {`labels: {scheduling.x-k8s.io/pod-group: pg}`, "", ""},
		"a scheduler that nobody knows":  {`annotations: {scheduling.k8s.io/group-name: mpi-0}`, "theirs", ""},
		"a Job's pods stand alone":       {`ownerReferences: [{kind: Job, name: batch}]`, "kai-scheduler", ""},
		"no group":                       {``, "volcano", ""},
	} {
		pod := readPod(t, `{metadata: {`+c.meta+`}, spec: {schedulerName: "`+c.scheduler+`", `+one+`}}`)
		got := translated(t, translator, pod, sixteen)
		if c.group == "" {
			if got != "main: 1 gpu" {
				t.Errorf("%s: %s", name, got)
			}
			continue
		}
		want := `the pod is one of the group "` + c.group + `" of scheduler ` + c.scheduler + `, which would wait for it and run none: name default-scheduler as scheduler of the whole workload, which then starts without a group`
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
}

// TestSchedulersWithoutClaims takes pods from Koordinator's scheduler also where its dialect is off: it knows no claims.
func TestSchedulersWithoutClaims(t *testing.T) {
	for dialects, limit := range map[string]string{"{nvidia: {}}": "nvidia.com/gpu: 1", "{hami: {}}": "nvidia.com/gpumem: 300", "{plain: {}}": "divvy.dev/gpu: 1"} {
		pod := limitsOf(t, limit)
		pod.Spec.SchedulerName = koordScheduler
		patch, _, err := translate(newTranslator(t, dialects), pod, sixteen)
		if err != nil {
			t.Fatal(err)
		}
		if got := apply(t, pod, patch).Spec.SchedulerName; got != defaultScheduler {
			t.Errorf("%s: scheduler %s", dialects, got)
		}
	}
}

// TestKoordinatorHints refuses, in every dialect, what only Koordinator's scheduler honours.
func TestKoordinatorHints(t *testing.T) {
	for _, c := range []struct{ note, value, want string }{
		{"scheduling.koordinator.sh/device-joint-allocate", `{"deviceTypes":["gpu","rdma"]}`, "device-joint-allocate is not offered"},
		{"scheduling.koordinator.sh/gpu-partition-spec", `{"allocatePolicy":"Restricted"}`, "gpu-partition-spec is not offered"},
		{"scheduling.koordinator.sh/device-allocate-hint", `{"gpu":{}}`, "device-allocate-hint is not offered"},
		{"scheduling.koordinator.sh/numa-topology-spec", `{"numaTopologyPolicy":"SingleNUMANode"}`, "numa-topology-spec is not offered"},
		{"scheduling.koordinator.sh/numa-topology-spec", `{`, "numa-topology-spec is not offered"},
		{"scheduling.koordinator.sh/numa-topology-spec", `{"numaTopologyPolicy":"BestEffort"}`, ""},
		{"scheduling.koordinator.sh/qos-class", `LS`, ""},
	} {
		for dialects, limit := range map[string]string{"{nvidia: {}}": "nvidia.com/gpu: 1", "{koordinator: {}}": "koordinator.sh/gpu: 50", "{plain: {}}": "divvy.dev/gpu: 1"} {
			pod := limitsOf(t, limit)
			pod.Annotations = map[string]string{c.note: c.value}
			got := translated(t, newTranslator(t, dialects), pod, sixteen)
			if c.want == "" && !strings.HasPrefix(got, "main: 1 ") || !strings.Contains(got, c.want) {
				t.Errorf("%s: %s: %s", dialects, c.value, got)
			}
		}
	}
	pod := limitsOf(t, "nvidia.com/gpu: 1", "koordinator.sh/rdma: 100")
	if got := translated(t, newTranslator(t, "{nvidia: {}}"), pod, sixteen); !strings.Contains(got, "which only Koordinator's scheduler gives") {
		t.Errorf("a NIC beside the GPU: %s", got)
	}
	alone := &corev1.Pod{}
	alone.Annotations = map[string]string{"scheduling.koordinator.sh/gpu-partition-spec": "{}"}
	if got := translated(t, newTranslator(t, "{nvidia: {}}"), alone, sixteen); got != "" {
		t.Errorf("a pod without GPUs: %s", got)
	}
}

// TestGroupsThatTheSchedulerKnows tells who leaves a scheduler whether Divvy's keeps the group.
func TestGroupsThatTheSchedulerKnows(t *testing.T) {
	translator := newScheduled(t, "{nvidia: {}, volcano: {}, kai: {}}")
	for meta, want := range map[string]string{
		`annotations: {scheduling.k8s.io/group-name: g}`:        "which knows the group too",
		`annotations: {gang.scheduling.koordinator.sh/name: g}`: "which knows the group too",
		`labels: {scheduling.x-k8s.io/pod-group: g}`:            "which knows the group too",
		`annotations: {pod-group-name: g}`:                      "which then starts without a group",
		`ownerReferences: [{kind: MPIJob, name: g}]`:            "which then starts without a group",
	} {
		pod := readPod(t, `{metadata: {`+meta+`}, spec: {schedulerName: volcano, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`)
		_, err := translator.Translate(pod, numbered(sixteen))
		if err == nil || !strings.HasSuffix(err.Error(), "name divvy-scheduler as scheduler of the whole workload, "+want) {
			t.Errorf("%s: %v", meta, err)
		}
	}
}
