"""The machine and what lies on it: processes, load, services, logs, and the onboarding flows' knowledge.

`processes` lists and signals; `sysinfo` samples load, disks, services and logs; `health` says what is unusual;
`downloads` sorts a folder of downloads; `repository` explains a repository from its files.
"""
