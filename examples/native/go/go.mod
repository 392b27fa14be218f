module lookup

go 1.22
