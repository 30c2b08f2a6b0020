package helper

// ComputeMode is [nvml.Library.ComputeMode].
func (d *Driver) ComputeMode(gpu int) (string, error) {
	t := d.ask([]item{{Kind: askComputeMode, Index: gpu}})[0]
	return t.Mode, t.err
}

// SetComputeMode is [nvml.Library.SetComputeMode]. A GPU that answers late may still take the mode afterwards.
func (d *Driver) SetComputeMode(gpu int, mode string) error {
	return d.ask([]item{{Kind: setComputeMode, Index: gpu, Mode: mode}})[0].err
}
