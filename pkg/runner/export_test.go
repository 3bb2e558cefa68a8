package runner

// ProcessOf looks up a living process of this machine, as the journal records it.
func ProcessOf(pid int) (Process, error) {
	p, _, err := processOf(pid)
	if err != nil {
		return Process{}, err
	}
	p.Boot, err = bootID()
	return p, err
}
