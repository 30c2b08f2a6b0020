package v1alpha1

// The backends of the cluster's shares, by the class that gives them and by the form of the devices that it selects.
var sharing = []struct {
	class, form string
	backend     Backend
}{
	{ClassShare, FormShared, BackendSlice},
	{ClassTimeslice, FormTimeslice, BackendTimeslice},
	{ClassMPS, FormMPS, BackendMPS},
	{ClassRemote, FormRemote, BackendRemote},
}

// FormOf returns the form of the devices whose shares have a backend; left out it is slice. It is "" for a backend of
// which a cluster has no devices.
func FormOf(b Backend) string {
	for _, s := range sharing {
		if s.backend == b || b == "" {
			return s.form
		}
	}
	return ""
}

// BackendOf returns the backend of the shares of a form's devices, "" for a form without shares.
func BackendOf(form string) Backend {
	for _, s := range sharing {
		if s.form == form {
			return s.backend
		}
	}
	return ""
}

// ClassOf returns the device class of shares with a backend; left out it is slice. It is "" for a backend of which a
// cluster has no devices.
func ClassOf(b Backend) string {
	for _, s := range sharing {
		if s.backend == b || b == "" {
			return s.class
		}
	}
	return ""
}

// SharesOf returns the backend of the shares that a device class gives, "" for a class that gives none.
func SharesOf(class string) Backend {
	for _, s := range sharing {
		if s.class == class {
			return s.backend
		}
	}
	return ""
}

// ShareClasses are the device classes of shares.
func ShareClasses() []string {
	var all []string
	for _, s := range sharing {
		all = append(all, s.class)
	}
	return all
}

// IsInstanceClass reports whether a request of a device class takes a MIG instance, where the device is Divvy's.
func IsInstanceClass(class string) bool { return class == ClassMIG || class == ClassNVIDIAMIG }

// IsNICClass reports whether a request of a device class takes an RDMA card, or a function of one.
func IsNICClass(class string) bool { return class == ClassNIC || class == ClassNICFunction }

// IsWholeClass reports whether a request of a device class takes all of a GPU and names no amounts, where the device is
// Divvy's.
func IsWholeClass(class string) bool { return class == ClassWhole || class == ClassNVIDIA }
