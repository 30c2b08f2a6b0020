package agent

import "testing"

func TestKeysTellPodsFromClaims(t *testing.T) {
	const pod, claim = "0b7b2c52-pod", "1f1e2d3c-claim"
	if uid, ok := PodOfKey(PodKey(pod, "main")); !ok || uid != pod {
		t.Errorf("a pod's key is of %q, %t", uid, ok)
	}
	for _, key := range []string{claim, claim + "/a+b", "pod", "pod/", ""} {
		if uid, ok := PodOfKey(key); ok {
			t.Errorf("%q is of pod %q", key, uid)
		}
	}
}
