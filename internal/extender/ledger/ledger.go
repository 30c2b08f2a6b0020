package ledger

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// The errors of questions.
var (
	// ErrPod marks a pod that nothing can be said about: it asks for no share, or what it asks cannot be read or never be
	// given.
	ErrPod = errors.New("invalid pod")
	// ErrTaken marks a place that cannot be reserved any more, or at all.
	ErrTaken = errors.New("place is taken")
)

// Config is what a ledger works with.
type Config struct {
	Policy alloc.Policy
	// Grace is for how long a node's agent and pods may say different things of a GPU before it is fenced. An agent tells
	// what it holds a second later than it gives it.
	Grace time.Duration
}

// Ledger is what a cluster's nodes have and what of it is given.
type Ledger struct {
	inv *alloc.Inventory
}

// New makes the ledger of an empty cluster.
func New(c Config) (*Ledger, error) {
	inv, err := alloc.NewInventory(nil, c.Policy)
	if err != nil {
		return nil, err
	}
	return &Ledger{inv: inv}, nil
}

// SetNode takes in a node: its annotations, and what can be allocated of processors and memory; nil is for one that is
// gone. The ledger keeps nothing of the object.
func (l *Ledger) SetNode(name string, object *corev1.Node) {}

// SetPod takes in a pod, whatever it asks; nil is for one that is gone. Every pod that has a node counts with what it
// asks of processors and memory, so that the policy sees what the host has left. What was reserved for the pod ends where
// the pod is seen with a node, and where it is gone or has ended. The ledger keeps nothing of the object.
func (l *Ledger) SetPod(uid types.UID, object *corev1.Pod) {}

// Advance tells the time, which decides when a contradiction has lasted for the grace. It returns when it is to be called
// next at the latest; the zero time is never. What changes begins to last at the time of the last call before.
func (l *Ledger) Advance(now time.Time) (due time.Time) { return due }

// Kind says what of a node's answer can be done about.
type Kind uint8

// The kinds, the nearest to a place last.
const (
	// Unknown is a node that the ledger does not know, or that says nothing of GPUs.
	Unknown Kind = iota
	// Unreadable is a node whose annotations cannot be read: its agent is of another version.
	Unreadable
	// Never is a node on which the pod would not fit if it had no other pods.
	Never
	// Sick is a node whose GPUs that could serve are not healthy.
	Sick
	// Fenced is a node with GPUs that contradictions keep from serving.
	Fenced
	// Full is a node on which the pod fits when others have ended.
	Full
	// Fits is a node on which it fits.
	Fits
	kinds
)

// Verdict is what is said of a node.
type Verdict struct {
	Kind Kind
	// Text says why the pod does not fit there; it is empty where it does.
	Text string
}

// Filter says of each of these nodes whether a pod fits there, in their order. It does not say no because processors or
// memory of the host are too few: the scheduler counts these. The error is [ErrPod].
func (l *Ledger) Filter(pod *corev1.Pod, nodes []string) ([]Verdict, error) { return nil, ErrPod }

// MostScore is the best score.
const MostScore = 10

// Prioritise scores these nodes for a pod, in their order, from 0 to [MostScore]. The node that the policy wants most alone
// has [MostScore], and no node has more than one that it wants more. The error is [ErrPod].
func (l *Ledger) Prioritise(pod *corev1.Pod, nodes []string) ([]int, error) { return nil, ErrPod }

// Reserve takes for a pod what the policy chooses of a node, until [Ledger.Undo] or until the pod is seen with a node. The
// same again gets the same answer. The error is [ErrPod] or [ErrTaken], and nothing is taken then.
func (l *Ledger) Reserve(pod *corev1.Pod, node string) (v1alpha1.PodAssignment, error) {
	return v1alpha1.PodAssignment{}, ErrPod
}

// Undo takes back what was reserved for a pod, as if it had never been. It reports whether something was.
func (l *Ledger) Undo(uid types.UID) bool { return false }

// Bound notes that the API server has taken the pod's binding. It reports false where nothing is reserved for the pod, as
// when it has been seen with its node already.
func (l *Ledger) Bound(uid types.UID) bool { return false }

// Reservation is what was reserved for a pod that was not seen with a node yet.
type Reservation struct {
	Pod       types.UID
	Node      string
	Bound     bool
	Namespace string
	Name      string
	// Since is the time of the last [Ledger.Advance] before it was reserved.
	Since time.Time
}

// Reservations are all that there are, by UID.
func (l *Ledger) Reservations() []Reservation { return nil }

// Fence is a GPU that takes no more shares until what contradicts itself there has ended, and why.
type Fence struct {
	// UUID is empty where the node's annotations cannot be read, so that none of its GPUs takes shares.
	Node, UUID string
	Reason     string
	// Pods are those with a part of the GPU in what contradicts itself, by UID.
	Pods []string
}

// Fences are all that there are, by node and UUID.
func (l *Ledger) Fences() []Fence { return nil }

// Inventory is what there is, with everything that was told until this call. The caller must not reserve there.
func (l *Ledger) Inventory() *alloc.Inventory { return l.inv }

// Rebuilt is a ledger that is made anew of what this one was told last of every object, and of what is reserved.
func (l *Ledger) Rebuilt() (*Ledger, error) { return New(Config{}) }

// Difference says in what two ledgers differ first, "" for equal ones.
func (l *Ledger) Difference(other *Ledger) string { return "" }
