"""The machine: processes, load, services, logs, and the analyses behind the onboarding flows.

`processes` lists and signals processes; `sysinfo` samples load, disks, services and logs; `health` reports what is
unusual; `downloads` sorts a folder of downloads; `repository` summarizes a repository from its files.
"""
