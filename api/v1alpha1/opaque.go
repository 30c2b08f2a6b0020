package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"
)

// KindShareConfig is the kind of a [ShareConfig] that stands alone.
const KindShareConfig = "ShareConfig"

// opaque is a share's configuration as a document: in a ResourceClaim or a
// DeviceClass, where the API server takes it as it is.
type opaque struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	ShareConfig
}

// EncodeShareConfig writes a share's configuration as a document.
func EncodeShareConfig(config ShareConfig) ([]byte, error) {
	text, err := json.Marshal(opaque{APIVersion, KindShareConfig, config})
	if err != nil {
		return nil, fmt.Errorf("write the share's configuration: %w", err)
	}
	return text, nil
}

// DecodeShareConfig reads a share's configuration strictly: unknown and repeated
// fields are errors that wrap [ErrRequest], and so is any document but a
// divvy.dev/v1alpha1 ShareConfig. What is left out stays so.
func DecodeShareConfig(text []byte) (ShareConfig, error) {
	var o opaque
	faults, err := kjson.UnmarshalStrict(text, &o)
	if err := errors.Join(append(faults, err)...); err != nil {
		return ShareConfig{}, fmt.Errorf("%w: read the share's configuration: %w", ErrRequest, err)
	}
	if o.APIVersion != APIVersion || o.Kind != KindShareConfig {
		return ShareConfig{}, fmt.Errorf("%w: read the share's configuration: it is %q %q, not %s %s",
			ErrRequest, o.APIVersion, o.Kind, APIVersion, KindShareConfig)
	}
	return o.ShareConfig, nil
}
