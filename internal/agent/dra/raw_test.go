package dra

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// A pod with a part of a shared card is warned once where a container asks for raw packets, whichever container it is, and not of what
// runtimes give unasked, nor where it has a card alone.
func TestRawPacketsOnSharedCards(t *testing.T) {
	adds := func(add, drop string) *corev1.SecurityContext {
		c := &corev1.Capabilities{}
		for _, name := range strings.Fields(add) {
			c.Add = append(c.Add, corev1.Capability(name))
		}
		for _, name := range strings.Fields(drop) {
			c.Drop = append(c.Drop, corev1.Capability(name))
		}
		return &corev1.SecurityContext{Capabilities: c}
	}
	for name, test := range map[string]struct {
		device     string
		main, side *corev1.SecurityContext
		want       string
	}{
		"nothing said":      {"nic-c0-shared", nil, nil, ""},
		"others":            {"nic-c0-shared", adds("IPC_LOCK", ""), adds("", "ALL"), ""},
		"added":             {"nic-c0-shared", adds("IPC_LOCK NET_RAW", ""), nil, "container main adds"},
		"by its long name":  {"nic-c0-shared", adds("CAP_NET_RAW", "ALL"), nil, "container main adds"},
		"all":               {"nic-c0-shared", adds("ALL", ""), nil, "container main adds"},
		"all but that":      {"nic-c0-shared", adds("ALL", "NET_RAW"), nil, ""},
		"all and none":      {"nic-c0-shared", adds("ALL", "ALL"), nil, ""},
		"without the card":  {"nic-c0-shared", nil, adds("NET_RAW", ""), "container side adds"},
		"privileged beside": {"nic-c0-shared", nil, &corev1.SecurityContext{Privileged: ptr.To(true)}, "container side adds"},
		"both":              {"nic-c0-shared", adds("NET_RAW", ""), adds("NET_RAW", ""), "container side, main adds"},
		"alone":             {"nic-v0-vf", adds("NET_RAW", ""), nil, ""},
	} {
		claim, pod := one(test.device, map[bool]string{true: "1"}[strings.HasSuffix(test.device, "shared")])
		pod.Spec.Containers[0].SecurityContext = test.main
		pod.Spec.InitContainers = []corev1.Container{{Name: "side", SecurityContext: test.side}}
		m, _ := newCardMachine(t, claim, pod)
		r := m.start()
		m.mustPrepare(r, claim)
		m.mustPrepare(r, claim) // as when the kubelet asks again
		var told []string
		for len(m.events.Events) > 0 {
			if text := <-m.events.Events; strings.Contains(text, reasonRaw) {
				told = append(told, text)
			}
		}
		switch {
		case test.want == "" && len(told) > 0, test.want != "" && len(told) != 1:
			t.Errorf("%s: told is %q, want %q", name, told, test.want)
		case test.want != "" && !strings.Contains(told[0], test.want+" the capability NET_RAW, and the pod has a part of shared card nic-c0-shared"):
			t.Errorf("%s: told is %q", name, told)
		}
	}
}

// A pod that comes later to a prepared claim, and adds raw packets, is warned too, once.
func TestRawPacketsOfALaterPod(t *testing.T) {
	claim, pod := one("nic-c0-shared", "1")
	m, _ := newCardMachine(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	w := m.watched(r)
	later := podOf("later", map[string][]ref{"main": {{"b", ""}}})
	later.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{netRaw}}}
	reserve(claim, pod, later)
	if err := m.client.Tracker().Update(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), claim, claim.Namespace); err != nil {
		t.Fatal(err)
	}
	m.addPod(w, later)
	for range 2 {
		newReconciler(r.driver).look(t.Context())
	}
	var told []string
	for len(m.events.Events) > 0 {
		if text := <-m.events.Events; strings.Contains(text, reasonRaw) {
			told = append(told, text)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], "container main adds the capability NET_RAW") {
		t.Errorf("told is %q", told)
	}
}
