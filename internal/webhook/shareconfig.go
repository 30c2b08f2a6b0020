package webhook

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

const shareKind = "ShareConfig"

// opaque is the driver's configuration in a claim.
type opaque struct {
	metav1.TypeMeta      `json:",inline"`
	v1alpha1.ShareConfig `json:",inline"`
}

func encodeShareConfig(config v1alpha1.ShareConfig) ([]byte, error) {
	text, err := json.Marshal(opaque{metav1.TypeMeta{APIVersion: APIVersion, Kind: shareKind}, config})
	if err != nil {
		return nil, fmt.Errorf("write the share's configuration: %w", err)
	}
	return text, nil
}

// DecodeShareConfig reads the driver's configuration in a claim, strictly: unknown and repeated fields are errors, and
// so is anything but divvy.dev/v1alpha1 ShareConfig. What is left out stays so.
func DecodeShareConfig(text []byte) (v1alpha1.ShareConfig, error) {
	var o opaque
	faults, err := kjson.UnmarshalStrict(text, &o)
	if err := errors.Join(append(faults, err)...); err != nil {
		return v1alpha1.ShareConfig{}, fmt.Errorf("read the share's configuration: %w", err)
	}
	if o.APIVersion != APIVersion || o.Kind != shareKind {
		return v1alpha1.ShareConfig{}, fmt.Errorf("read the share's configuration: it is %q %q, not %s %s", o.APIVersion, o.Kind, APIVersion, shareKind)
	}
	return o.ShareConfig, nil
}
