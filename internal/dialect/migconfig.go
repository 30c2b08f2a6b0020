package dialect

import (
	kjson "sigs.k8s.io/json"
)

// migConfigKind is the kind of configurations of MIG devices.
const migConfigKind = "MigDeviceConfig"

// migConfig is the document. Unlike that of GPUs it has no lengths of time slices.
type migConfig struct {
	nvidiaHead
	Sharing *struct {
		Strategy string     `json:"strategy"`
		MPS      *mpsConfig `json:"mpsConfig"`
	} `json:"sharing"`
}

// IsMIGConfig reports whether opaque parameters for NVIDIA's DRA driver are for MIG devices.
func IsMIGConfig(text []byte) bool {
	var head nvidiaHead
	return kjson.UnmarshalCaseSensitivePreserveInts(text, &head) == nil && head.Kind == migConfigKind
}

// DecodeMIGConfig reads a MigDeviceConfig as strictly as [DecodeGPUConfig] does. Strategy TimeSlicing asks nothing: it is
// what the driver does with the processes of an instance, and the length of its slices cannot be set there.
func DecodeMIGConfig(text []byte) (GPUConfig, error) {
	if err := checkHead(text, migConfigKind); err != nil {
		return GPUConfig{}, err
	}
	var document migConfig
	if err := decodeStrictly(text, &document); err != nil || document.Sharing == nil {
		return GPUConfig{}, err
	}
	switch s := document.Sharing; s.Strategy {
	case "TimeSlicing":
		if s.MPS != nil {
			return GPUConfig{}, gpuFault("sharing.mpsConfig is for strategy MPS: leave it out")
		}
		return GPUConfig{}, nil
	case "MPS":
		return GPUConfig{}, gpuFault("sharing.strategy MPS: a claim's processes share a MIG device by the driver's time slices: use TimeSlicing, or leave out sharing")
	default:
		return GPUConfig{}, gpuFault("sharing.strategy %q: use TimeSlicing", s.Strategy)
	}
}
