package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	// churned is how many pods come and go.
	churned = 200
	// together is how many of them there are at once, some of which wait.
	together = 24
	// every is after how many steps the test waits until all records agree; it checks sums after each.
	settle = 10
)

// Pods are made and removed in random order, and nothing of them is left at the end.
func TestChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: `make e2e` runs it")
	}
	l := newLab(t)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("DIVVY_E2E_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("DIVVY_E2E_SEED=%d", seed)
	l.scenario("churn", func(l *lab) { churn(l, rand.New(rand.NewPCG(seed, 1))) })
}

func churn(l *lab, random *rand.Rand) {
	var there []string
	for made, step := 0, 0; made < churned || len(there) > 0; step++ {
		if made < churned && (len(there) == 0 || len(there) < together && random.IntN(3) > 0) {
			name := fmt.Sprintf("p%03d", made)
			l.create(randomPod(random, name))
			there = append(there, name)
			made++
		} else {
			i := random.IntN(len(there))
			options := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(random.IntN(2)))}
			l.must(l.Client().CoreV1().Pods(l.namespace).Delete(l.ctx, there[i], options))
			there = append(there[:i], there[i+1:]...)
		}
		for _, n := range l.Nodes {
			l.eventually("an agent of "+n.Name+" tells its shares", func() string { // a kubelet may start one anew that was slow
				listing, err := l.listing(n)
				if err == nil {
					l.sums(n, listing)
				}
				return reason(err)
			})
		}
		if step%settle == 0 {
			l.agree()
		}
	}
	l.free()
}

// randomPod is one of all forms, which holds some of its memory.
func randomPod(random *rand.Rand, name string) *corev1.Pod {
	holds := func(c corev1.Container, bytes string) corev1.Container {
		c.Command, c.Stdin = []string{"gpubench", "hold", "--bytes=" + bytes}, true
		return c
	}
	memory := fmt.Sprintf("%dMi", 1024+random.IntN(5*1024))
	switch random.IntN(8) {
	case 0:
		p := whole(name, 1)
		p.Spec.Containers[0] = holds(p.Spec.Containers[0], "10Gi")
		return p
	case 1:
		return pod(name, holds(container("one", memory, ""), "256Mi"), holds(container("two", "1Gi", "10"), "512Mi"))
	case 2:
		p := pod(name, holds(container("main", memory, "5"), "512Mi"))
		p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceGPU] = quantity("2")
		return p
	default:
		return pod(name, holds(container("main", memory, strconv.Itoa(random.IntN(40)+1)), "512Mi"))
	}
}
